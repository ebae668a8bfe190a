"""What notebook 02 says and no cell of it can show quietly; and the answers to its "Try it"."""

import inspect
import sys
import types
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from ddp_workbook import launch
from ddp_workbook.chapters import distributed_data_parallel
from ddp_workbook.digits import DigitsMLP
from ddp_workbook.errors import RankFailed
from ddp_workbook.recording.collectives import record_collectives
from tests.workers import ddp_claims as workers

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "02_distributed_data_parallel.ipynb"


@pytest.fixture(scope="module")
def cells() -> dict[str, str]:
    """The notebook's code cells by id."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    return {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "code"}


@pytest.fixture
def page(cells, tmp_path, monkeypatch) -> types.SimpleNamespace:
    """A folder with the files that the notebook writes, and `run`, which runs a cell in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "work").mkdir()
    for name in [name for name in sys.modules if name.split(".")[0] == "work"]:
        monkeypatch.delitem(sys.modules, name)
    for source in cells.values():
        if source.startswith("%%writefile"):
            line, text = source.split("\n", 1)
            with open(line.split()[-1], "a" if " -a " in line else "w") as file:
                file.write(text + "\n")
    names: dict = {"pd": pd, "launch": launch, "record_collectives": record_collectives}
    return types.SimpleNamespace(names=names, run=lambda id: exec(cells[id], names))


def sent(worker, ranks: int = 2, **arguments) -> pd.DataFrame:
    """Rank 0's messages, without the barrier at the end."""
    wire = record_collectives(worker, ranks=ranks, **arguments)
    return wire[(wire["rank"] == 0) & (wire["op"] != "barrier")]


def on_line(wire: pd.DataFrame, comment: str) -> list[tuple[str, int]]:
    """(op, bytes) of the messages from the worker's line that ends in this comment."""
    lines = inspect.getsource(workers).splitlines()
    numbers = [str(n) for n, text in enumerate(lines, start=1) if text.endswith(f"# {comment}")]
    assert numbers
    rows = wire[wire["line"].str.split(":").str[1].isin(numbers)]
    return list(zip(rows["op"], rows["bytes"], strict=True))


# no_sync


def test_no_sync_sends_nothing():
    assert on_line(sent(workers.without_sync), "unsynchronised") == []


def test_the_deep_model_of_the_timings_has_33_layers_and_66_gradients():
    model = DigitsMLP(64, 32)
    assert len(model.hidden) + 1 == 33 and len(list(model.parameters())) == 66


# The answers to "Try it"


def test_try_2_what_logging_costs():
    wire = record_collectives(distributed_data_parallel.train, ranks=2, epochs=1)
    assert list(wire[wire["op"] == "all_reduce"].groupby("rank").size()) == [30, 30]


@pytest.mark.parametrize("who", [0, 1])
def test_try_3_another_straggler(page, who):
    page.run("waits-define")
    from work.late import timed_steps

    times = [page.names["spent"](one) for one in launch(timed_steps, "step", who=who, ranks=3)]
    for rank, spent in enumerate(times):
        if rank == who:
            assert spent["step"] > 190
        else:
            assert spent["step"] < 100 < spent["forward"] + spent["backward"]


def test_try_4_an_if_that_is_too_long(cells, tmp_path, monkeypatch):
    from ddp_workbook.notebook.cells import run_cell

    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "log.txt").touch()
    text = cells["try-4"].split("\n", 1)[1]
    assert text.count("\ndist.barrier()") == 1
    cell = tmp_path / "cell.py"
    cell.write_text(text.replace("\ndist.barrier()", "\n    dist.barrier()"))
    with pytest.raises(RankFailed, match="entered by rank 0, never by rank 1"):
        launch(run_cell, str(cell), False, ranks=2)
