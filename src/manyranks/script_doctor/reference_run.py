"""The script once more on one rank, with the batches that all its ranks have read."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from manyranks.errors import HangUndecided, LaunchRefused, RankFailed, RanksHung
from manyranks.launcher.calls import Call
from manyranks.launcher.hang_detection import HangLimits
from manyranks.launcher.launch import run_ranks
from manyranks.script_doctor.observed_worker import Extent, ObservedWorker, steps_folder
from manyranks.script_doctor.replay import Replay

UNLIMITED = 1 << 30


@dataclass
class StepRecord:
    """What one step of a rank used; gradients and weights are flat, in double precision.

    `own` are the gradients that this rank's backward passes made, before anything averaged them.
    """

    names: list[str]
    parameters: int  # of the optimizer; names may be fewer
    weights: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]
    own: dict[str, torch.Tensor]
    shards: float | None  # the factor between what backward left in the shards and what is used
    rates: list[float]
    rows: list[int]
    rounded: bool  # to 16 bits, somewhere
    drew: bool  # random numbers, since its first forward pass
    lines: list[str]


@dataclass
class Run:
    """The records of all ranks of one run: (optimizer, number of its step) -> one of each rank."""

    steps: dict[tuple[str, int], list[StepRecord]] = field(default_factory=dict)
    why_not: str = ""  # why there is none


def records_of(folder: Path, ranks: int) -> dict[tuple[str, int], list[StepRecord]]:
    """The steps that all ranks have recorded."""
    raw: dict[tuple[str, int], list[dict]] = {}
    for rank in range(ranks):
        for file in steps_folder(folder, rank).glob("step-*.pt"):
            _, optimizer, number = file.stem.split("-")
            raw.setdefault((optimizer, int(number)), []).append(torch.load(file, weights_only=True))
    return {
        key: [_record(of_rank, of_ranks) for of_rank in of_ranks]
        for key, of_ranks in sorted(raw.items())
        if len(of_ranks) == ranks
    }


def _record(own: dict[str, Any], of_ranks: list[dict[str, Any]]) -> StepRecord:
    def whole(part: str) -> dict[str, torch.Tensor]:
        return {
            name: whole_tensor(own[part][n], [of[part][n] for of in of_ranks])
            for n, name in enumerate(own["names"])
            if all(len(of[part]) > n for of in of_ranks)
        }

    parts = {part: whole(part) for part in ("weights", "gradients", "own")}
    return StepRecord(**(own | parts))


def whole_tensor(own: dict | None, pieces: Sequence[dict | None]) -> torch.Tensor:
    """A tensor, put together from the pieces of all ranks if it is sharded; flat, doubles.

    No gradient is one of no elements.
    """
    if own is None:
        return torch.zeros(0, dtype=torch.double)
    if "shape" not in own:
        return own["values"].double().flatten()
    whole = torch.full(own["shape"], torch.nan, dtype=torch.double)
    for piece in pieces:
        if piece is not None and piece["values"].numel():
            sizes = zip(piece["offset"], piece["values"].shape, strict=True)
            place = tuple(slice(begin, begin + size) for begin, size in sizes)
            whole[place] = piece["values"].double()
    return whole.flatten()


class ReferenceRun:
    """Runs a script on one rank, with the rows that all its ranks have read."""

    def __init__(self, call: Call, folder: Path, ranks: int, as_if_gpus: bool, timeout: float):
        self.call, self.folder, self.ranks = call, folder, ranks
        self.as_if_gpus, self.timeout = as_if_gpus, timeout
        self.observed = Run(records_of(folder, ranks))

    def joined(self) -> Run:
        """Run it."""
        folder = self.folder / "one process"
        (folder / "facts").mkdir(parents=True)
        replay = Replay([steps_folder(self.folder, rank) for rank in range(self.ranks)])
        extent = Extent(UNLIMITED, UNLIMITED, UNLIMITED, self.timeout)
        worker = ObservedWorker(self.call.worker, folder, extent, replay)
        limits = HangLimits(
            idle=self.timeout, processor=self.timeout, patience=self.timeout, polling=self.timeout
        )
        error = ""
        try:
            run_ranks(
                Call(worker, self.call.args, self.call.kwargs),
                1,
                quiet=True,
                hang_limits=limits,
                output=io.StringIO(),
                as_if_gpus=self.ranks if self.as_if_gpus else 0,
            )
        except (RanksHung, HangUndecided):
            error = f"on one rank it makes no step in {self.timeout:g} s"
        except (RankFailed, LaunchRefused) as failure:
            error = f"the script ends in an error on one rank ({first_line(failure)})"
        reason = steps_folder(folder, 0) / "cannot_join.json"
        if reason.exists():
            return Run(why_not=json.loads(reason.read_text()))
        steps = records_of(folder, 1)
        return Run(steps, "" if steps else error or "on one rank it makes no step")


def first_line(error: Exception) -> str:
    """What the rank's error says, in one line."""
    text = str(getattr(error, "reason", "") or error).strip()
    return text.splitlines()[0][:120] if text else type(error).__name__
