"""The reader's own loop, and the same with Accelerate, Lightning Fabric and the Trainer.

The libraries are no packages of the workbook. `run` runs a library's forms of the loop on ranks if
it is installed, and otherwise returns what `python -m` of this module has recorded.
"""

from __future__ import annotations

import io
import json
import linecache
import tempfile
from collections import Counter
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DistributedSampler

from ddp_workbook.chapters.digits import furthest
from ddp_workbook.experiments.fully_sharded import loops
from ddp_workbook.experiments.fully_sharded.loops import Outcome
from manyranks import figures
from manyranks.launcher.calls import call_of
from manyranks.launcher.launch import run_ranks
from manyranks.recording.dispatch_mode import Recorder

RANKS, LIMIT = 2, 300  # seconds; beside other work a rank needs 30 to import a library
RESULTS_FILE = Path(__file__).parents[4] / "data" / "libraries.json"
BY_HAND, AS_PRINTED, DEFAULT = "by hand", "as printed", "DataLoaderConfiguration()"
PACKAGES = {"Accelerate": "accelerate", "Fabric": "lightning", "Trainer": "transformers"}
WORKERS: dict[str, Callable[..., Outcome]] = {
    BY_HAND: loops.by_hand,
    "Accelerate": loops.with_accelerate,
    "Fabric": loops.with_fabric,
    "Trainer": loops.with_trainer,
}


class AcceptsAnyKeyword(loops.WithLoss):
    """Takes further keywords, such as the Trainer's `num_items_in_batch`, and does not use them."""

    def forward(  # type: ignore[override]
        self, images: Tensor, labels: Tensor, **others: Any
    ) -> dict[str, Tensor]:
        """The mean loss of these rows, and the scores."""
        return super().forward(images, labels)


DEFAULTS = {"split_batches": False, "use_seedable_sampler": False, "data_seed": None}
FORMS: dict[str, dict[str, dict[str, Any]]] = {  # beside the printed one: arguments of the worker
    BY_HAND: {},
    "Accelerate": {
        DEFAULT: DEFAULTS,
        "only split_batches=True": DEFAULTS | {"split_batches": True},
        "dispatch_batches=True as well": {"dispatch_batches": True},
        "a DistributedSampler as well": {"sampler": DistributedSampler},
    },
    "Fabric": {
        "seed_everything(1)": {"seed": 1},
        "use_distributed_sampler=False": {"replace_sampler": False},
    },
    "Trainer": {
        "seed=42, the default": {"seed": 42},
        "lr_scheduler_type='linear', the default": {"lr_scheduler_type": "linear"},
        "forward(..., **others)": {"model": AcceptsAnyKeyword},
    },
}


def run(library: str) -> dict:
    """The library's program in its FORMS on two ranks; what was recorded, if it is not installed.

    Says in a sentence if it is not. The result has "versions", and a dict for each of the "forms".
    """
    package = PACKAGES.get(library)
    if package and not is_installed(package):
        results = read_results()[library]
        print(
            f"{package} is not installed here, so this was recorded, with "
            f"{package} {results['versions'][package]}; pip install {package} lets the cell run it."
        )
        return results
    with tempfile.TemporaryDirectory(prefix="ddp-workbook-") as folder:
        call = call_of(in_rank, (library, Path(folder)), {}, RANKS)
        output = io.StringIO()  # libraries greet, and warn of what torch deprecates
        of_ranks = run_ranks(call, RANKS, LIMIT, quiet=True, output=output)
    forms = {what: summary([forms[what] for forms in of_ranks]) for what in of_ranks[0]}
    names = ["torch", *([package] if package else [])]
    return {"versions": {name: version(name) for name in names}, "forms": forms}


def is_installed(package: str) -> bool:
    """Whether pip has installed it."""
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def read_results() -> dict[str, dict]:
    """What `run` returned for each library when it was recorded."""
    return json.loads(RESULTS_FILE.read_text(encoding="utf-8"))


def record() -> None:
    """Run each library, and write what `run` returns into RESULTS_FILE."""
    text = json.dumps({library: run(library) for library in FORMS}, indent=1)
    RESULTS_FILE.write_text(text + "\n", encoding="utf-8")


# In a rank


class FormResult(NamedTuple):
    """What a form of the loop did in one rank."""

    outcome: Outcome
    furthest: float  # from the weights of the loop by hand
    off_file: float  # from the weights in the file that it has written
    wire: list[dict]
    files: list[str]


def in_rank(library: str, folder: Path) -> dict[str, FormResult]:
    """A worker: the loop by hand, then the library's in its FORMS, in the same group."""
    by_hand = run_form(loops.by_hand, {}, folder / BY_HAND)
    if library == BY_HAND:
        return {AS_PRINTED: by_hand}
    forms: dict[str, dict[str, Any]] = {AS_PRINTED: {}} | FORMS[library]
    weights, worker = by_hand.outcome.weights, WORKERS[library]
    return {
        what: run_form(worker, arguments, folder / str(number), weights)
        for number, (what, arguments) in enumerate(forms.items())
    }


def run_form(
    worker: Callable[..., Outcome],
    arguments: dict[str, Any],
    folder: Path,
    expected: dict[str, Tensor] | None = None,
) -> FormResult:
    """Run a form of the loop, recorded."""
    wire: list[dict] = []
    folder.mkdir(exist_ok=True)
    with Recorder(wire):
        outcome = worker(folder, **arguments)
    dist.barrier()  # all ranks' files are there
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    off = furthest(outcome.weights, expected or outcome.weights)
    return FormResult(outcome, off, furthest(plain_weights(folder), outcome.weights), wire, files)


def plain_weights(folder: Path) -> dict[str, Tensor]:
    """The last weights that a program has left in `folder`, as a plain DigitsMLP takes them."""
    file = max(folder.rglob("model.*"), key=lambda path: path.stat().st_mtime_ns)  # the newest
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file  # comes with the library that wrote the file

        return load_file(file)
    state = torch.load(file, weights_only=True)
    return state.get("model", state)  # Fabric saves a dict that you have named


def summary(ranks: list[FormResult]) -> dict:
    """A form on all ranks, as numbers and words: what JSON can hold."""
    outcome, wire = ranks[0].outcome, ranks[0].wire
    size = sum(tensor.nbytes for tensor in outcome.weights.values())
    steps = sum(row["op"] == "all_reduce" and row["bytes"] == size for row in wire)
    row_orders = [result.outcome.row_order for result in ranks]
    first = [rows[: len(rows) // loops.EPOCHS] for rows in row_orders]  # epoch
    return {
        "steps": steps,
        "rows a step": sum(map(len, row_orders)) // steps,
        "rows an epoch": len(set().union(*first)),
        "furthest": max(result.furthest for result in ranks),
        "off_file": max(result.off_file for result in ranks),
        "tested": outcome.test_count,
        "accuracy": outcome.accuracy,
        "read": [" ".join(map(str, rows[: loops.BATCH])) for rows in row_orders],
        "wire": by_line(wire),
        "files": ranks[0].files,
    }


def by_line(wire: list[dict]) -> list[dict]:
    """Calls and bytes of one rank for each line of a program and operation, in order."""
    calls, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in wire:
        number = int(row["line"].rpartition(":")[2])
        code = linecache.getline(loops.__file__, number).strip()
        calls[code, row["op"]] += 1
        sizes[code, row["op"]] += row["bytes"]
    return [
        {"line": code, "op": op, "calls": count, "bytes": sizes[code, op]}
        for (code, op), count in calls.items()
    ]


# What the page shows


def calls_table(result: dict, what: str = AS_PRINTED) -> pd.DataFrame:
    """What rank 0 has sent in a form: a row for each line of the program and operation."""
    return pd.DataFrame(result["forms"][what]["wire"])


def comparison_table(results: dict[str, dict], printed: bool = True) -> pd.DataFrame:
    """A row for each library's form as it is printed, or for each of its other forms."""
    rows = {}
    for library, result in results.items():
        for what, form in result["forms"].items():
            if (what == AS_PRINTED) is printed:
                row = {key: form[key] for key in ("steps", "rows a step", "rows an epoch")}
                row |= {"weights differ by": f"{form['furthest']:.0e}", "tested": form["tested"]}
                rows[library if printed else f"{library}: {what}"] = row
    return pd.DataFrame(rows).T


@figures.house_style
def row_assignment_plot(results: dict[str, dict]) -> figures.Picture:
    """Which rank reads which rows in the first step, as printed and with Accelerate's default.

    Rows stand in the order of the epoch: DistributedSampler's, if the form has that; else the
    form's own, one rank's micro-batch after the other's.
    """
    generator = torch.Generator().manual_seed(loops.SEED)
    epoch_order = torch.randperm(len(loops.TRAIN_ROWS), generator=generator).tolist()
    lanes = {library: result["forms"][AS_PRINTED] for library, result in results.items()}
    lanes["Accelerate by default"] = results["Accelerate"]["forms"][DEFAULT]
    bars, words = [], []
    for lane, form in lanes.items():
        micro = form["rows a step"] // RANKS // loops.ACCUMULATE
        row_orders = [[int(row) for row in rows.split()] for rows in form["read"]]
        first, second = ([rows[at : at + micro] for rows in row_orders] for at in (0, micro))
        own = [row for rows in first + second for row in rows]
        order = epoch_order[: len(own)] if {*own} == {*epoch_order[: len(own)]} else own
        rank_of = {row: rank for rank in range(RANKS) for row in first[rank] + second[rank]}
        ranks = [rank_of[row] for row in order]
        ends = [0, *(i for i, (a, b) in enumerate(pairwise(ranks), 1) if a != b), len(ranks)]
        bars += [(lane, f"rank {ranks[start]}", start, end) for start, end in pairwise(ends)]
        words.append(f"{lane}: {len(own)} rows, a rank's in pieces of {ends[1]}")
    table = pd.DataFrame(bars, columns=["lane", "what", "start", "end"])
    picture = figures.lanes(table, "row, in the order of the epoch", "")
    picture.alt = f"Which of two ranks reads which rows in the first step. {'; '.join(words)}."
    return picture


if __name__ == "__main__":
    record()
