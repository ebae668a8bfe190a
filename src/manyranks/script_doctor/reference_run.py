"""The script once more on one rank, with the batches that all its ranks have read."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from manyranks.errors import HangUndecided, LaunchRefused, RankFailed, RanksHung
from manyranks.launcher.calls import Call
from manyranks.launcher.hang_detection import HangLimits
from manyranks.launcher.launch import run_ranks
from manyranks.script_doctor.cut_models import division_of, whole_tensor
from manyranks.script_doctor.notes import read_notes
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
    # Of a model that is cut: by what its parts of the gradients were multiplied after backward, and
    # the norm of all these parts before.
    cut: set[str]  # names of the parameters of which this rank has a part
    factors: list[float | None]
    norm: float
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


def records_of(
    folder: Path, ranks: int, stages_of: Mapping[int, list[int]]
) -> dict[tuple[str, int], list[StepRecord]]:
    """The steps that all ranks have recorded.

    Stages may use the same names for other parameters, so that of the stage belongs to a name.
    """
    raw: dict[tuple[str, int], list[dict]] = {}
    for rank in range(ranks):
        of = "".join(f" of stage {number}" for number in stages_of.get(rank, [])[:1])
        for file in steps_folder(folder, rank).glob("step-*.pt"):
            _, optimizer, number = file.stem.split("-")
            record = torch.load(file, weights_only=True)
            record["names"] = [f"{name}{of}" for name in record["names"]]
            raw.setdefault((optimizer, int(number)), []).append(record)
    return {
        key: [_record(of_rank, of_ranks) for of_rank in of_ranks]
        for key, of_ranks in sorted(raw.items())
        if len(of_ranks) == ranks
    }


def _record(own: dict[str, Any], of_ranks: list[dict[str, Any]]) -> StepRecord:
    def whole(part: str) -> dict[str, torch.Tensor]:
        named = [dict(zip(of["names"], of[part], strict=True)) for of in of_ranks]
        return {
            name: whole_tensor(piece, [pieces[name] for pieces in named if name in pieces])
            for name, piece in zip(own["names"], own[part], strict=True)
        }

    parts = {part: whole(part) for part in ("weights", "gradients", "own")}
    pieces = zip(own["names"], own["weights"], strict=True)
    cut = {name for name, piece in pieces if piece is not None and "shape" in piece}
    return StepRecord(**(own | parts), cut=cut)


class ReferenceRun:
    """Runs a script on one rank, with the rows that all its ranks have read."""

    def __init__(self, call: Call, folder: Path, ranks: int, as_if_gpus: bool, timeout: float):
        self.call, self.folder, self.ranks = call, folder, ranks
        self.as_if_gpus, self.timeout = as_if_gpus, timeout
        self.division = division_of(read_notes(folder / "facts", ranks))
        self.observed = Run(records_of(folder, ranks, self.division.stages_of))

    def joined(self) -> Run:
        """Run it."""
        if self.division.stages > 1:
            stages = f"{self.division.stages} stages"
            return Run(why_not=f"the model is cut into {stages}, which need ranks of their own")
        folder = self.folder / "one process"
        (folder / "facts").mkdir(parents=True)
        replay = Replay([steps_folder(self.folder, rank) for rank in self.division.first_readers])
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
        steps = records_of(folder, 1, {})
        return Run(steps, "" if steps else error or "on one rank it makes no step")


def first_line(error: Exception) -> str:
    """What the rank's error says, in one line."""
    text = str(getattr(error, "reason", "") or error).strip()
    return text.splitlines()[0][:120] if text else type(error).__name__
