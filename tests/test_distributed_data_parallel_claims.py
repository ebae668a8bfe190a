"""What notebook 02 says and no cell of it can show quietly; and the answers to its "Try it"."""

import inspect
import os
import subprocess
import sys
import types
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook import launch
from ddp_workbook.chapters import distributed_data_parallel
from ddp_workbook.digits import DigitsMLP
from ddp_workbook.errors import RankFailed
from ddp_workbook.recording.collectives import record_collectives, recorded
from tests.workers import ddp_claims as workers

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "02_distributed_data_parallel.ipynb"
ARGUMENTS = list(inspect.signature(DistributedDataParallel).parameters)
MIB = 2**20


def since(argument: str):
    """Skips nothing where torch has the argument; older ones do not."""
    return pytest.mark.skipif(argument not in ARGUMENTS, reason=f"this torch has no {argument}")


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


# The constructor's arguments


def test_every_argument_is_explained(page):
    page.run("args-explained")
    assert [name for name in ARGUMENTS if name not in page.names["explained"]] == []


@pytest.fixture(scope="module")
def defaults() -> tuple[list, pd.DataFrame]:
    """Gradients and messages without any argument."""
    return recorded(workers.two_steps)


@pytest.mark.parametrize(
    "argument", [{"dim": 1}, {"check_reduction": True}, {"gradient_as_bucket_view": True}], ids=str
)
def test_arguments_that_change_no_message_and_no_gradient(defaults, argument):
    gradients, wire = recorded(workers.two_steps, **argument)
    torch.testing.assert_close(gradients, defaults[0], rtol=0, atol=0)
    columns = ["rank", "op", "bytes", "line"]
    pd.testing.assert_frame_equal(wire[columns], defaults[1][columns])


BUFFERS = [("broadcast", 2 * 8 * 4), ("broadcast", 8)]  # mean and variance; the counter


def test_buffers_are_sent_at_the_start_and_before_each_forward(defaults):
    wire = defaults[1][defaults[1]["rank"] == 0]
    assert on_line(wire, "constructor")[-1] == BUFFERS[1]
    assert [row for row in on_line(wire, "forward") if row in BUFFERS] == 2 * BUFFERS


@since("broadcast_buffers")
def test_broadcast_buffers_leaves_them_alone_at_the_start_too():
    wire = sent(workers.two_steps, broadcast_buffers=False)
    assert BUFFERS[1] not in on_line(wire, "constructor") + on_line(wire, "forward")


@since("forward_sync_buffers")
def test_forward_sync_buffers_sends_them_at_the_start():
    wire = sent(workers.two_steps, forward_sync_buffers=False)
    assert on_line(wire, "constructor")[-1] == BUFFERS[1]
    assert BUFFERS[1] not in on_line(wire, "forward")


def test_init_sync_off_sends_nothing_at_the_start_and_weights_differ():
    (one, other), wire = recorded(workers.two_steps, init_sync=False)
    assert on_line(wire, "constructor") == []
    torch.testing.assert_close(one, other, rtol=0, atol=0)  # of weights that differ


def test_a_mesh_is_a_group():
    assert launch(workers.in_a_mesh, ranks=4) == [0.5, 0.5, 2.5, 2.5]


def test_a_bucket_is_full_at_25_mib_and_the_first_at_1():
    wire = sent(workers.large_model)
    sizes = [size / MIB for size in wire.loc[wire["op"] == "all_reduce", "bytes"]]
    assert sizes == [30, 1, 25, 4]  # the first step: one bucket with everything


@since("bucket_cap_mb_list")
def test_a_list_of_limits_holds_from_the_first_step_on():
    limits = [32 / MIB, 1.0]
    wire = sent(workers.two_steps, bucket_cap_mb_list=limits)
    sizes = [size for op, size in on_line(wire, "backward") if op == "all_reduce"]
    whole = 4 * (4 * 8 + 8 + 8 + 8 + 8 * 2 + 2)
    assert len(sizes) == 4 and sum(sizes[:2]) == sum(sizes[2:]) == whole


@since("delay_all_reduce_named_params")
def test_delayed_parameters_travel_apart():
    wire = sent(workers.delayed)
    whole, apart = 4 * (4 * 8 + 8 + 8 * 2 + 2), 4 * 8 * 2
    assert list(wire.loc[wire["op"] == "all_reduce", "bytes"]) == [apart, whole - apart]


@since("batched_grad_copy")
def test_batched_copies_are_one_a_bucket_and_change_no_gradient(defaults):
    gradients = launch(workers.two_steps, batched_grad_copy=True)
    torch.testing.assert_close(gradients, defaults[0])
    many, one = launch(workers.copies)[0], launch(workers.copies, batched_grad_copy=True)[0]
    assert many["_foreach_copy_"] == 0 and one["_foreach_copy_"] == 1


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("frozen", "doesn't have any parameter that requires a gradient"),
        ("device_ids", "only work with single-device"),
        ("output_device", "only work with single-device"),
        ("mixed_precision", "cpu backend doesn't support"),
    ],
)
def test_what_a_cpu_refuses(kind, words):
    assert words in launch(workers.refused, kind, ranks=1)[0]


# Buffers, unused parameters, no_sync


def test_buffers_are_sent_if_the_forward_before_was_one_with_gradients():
    wire = sent(workers.evaluations)
    counts = {
        when: len([row for row in on_line(wire, when) if row == ("broadcast", 8)])
        for when in ("first evaluation", "second evaluation")
    }
    assert counts == {"first evaluation": 1, "second evaluation": 0}
    assert on_line(wire, "the model inside") == []
    after = [on_line(wire, f"{which} step after it") for which in ("first", "second")]
    assert [("broadcast", 8) in rows for rows in after] == [False, True]


def test_the_first_step_with_an_unused_part_sends_nothing():
    own, wire = recorded(workers.first_step_with_an_unused_part)
    assert own == [True, True]
    assert "all_reduce" not in set(wire["op"])


def test_an_unused_bucket_stays_at_home_only_where_asked(page):
    for id in ("wire-define", "sent-define"):
        page.run(id)
    from work.spare_part import steps_with_a_spare_part

    looking = {"find_unused_parameters": True, "bucket_cap_mb": 1 / 1024}
    everything = page.names["sent"](steps_with_a_spare_part, **looking)["backward"]
    assert sum(everything) == 3 * (19_240 + 2_600 + 24)
    if "skip_all_reduce_unused_params" in ARGUMENTS:
        looking["skip_all_reduce_unused_params"] = True
        less = page.names["sent"](steps_with_a_spare_part, **looking)["backward"]
        assert len(less) == len(everything) - 3 and sum(less) < sum(everything)


def test_no_sync_sends_nothing():
    assert on_line(sent(workers.without_sync), "unsynchronised") == []


def test_the_deep_model_of_the_timings_has_33_layers_and_66_gradients():
    model = DigitsMLP(64, 32)
    assert len(model.hidden) + 1 == 33 and len(list(model.parameters())) == 66


# Starting


def test_spawn_ends_the_others_when_one_fails():
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match="as planned"):
        torch.multiprocessing.spawn(workers.fails_at_rank_0, nprocs=2)


def test_spawn_returns_nothing(monkeypatch):
    assert torch.multiprocessing.spawn(print, nprocs=1) is None


def test_torchrun_keeps_hold_of_the_port():
    """The ranks use the store of torchrun itself, which has the port from the start."""
    command = "-m torch.distributed.run --standalone --nproc-per-node 1"
    done = subprocess.run(
        [sys.executable, *command.split(), workers.__file__],
        capture_output=True,
        text=True,
        timeout=100,
        env={name: value for name, value in os.environ.items() if "RANK" not in name},
    )
    assert done.stdout == "True\n", done.stderr


# The answers to "Try it"


def test_try_1_a_bucket_for_each_parameter(page):
    for id in ("wire-define", "sent-define"):
        page.run(id)
    from work.three_steps import three_steps

    many = page.names["sent"](three_steps, bucket_cap_mb=1e-5)["backward"]
    assert len(many) == 1 + 8 + 8
    whole = [52_520] * 3
    assert page.names["sent"](three_steps)["backward"] == whole
    assert page.names["sent"](three_steps, bucket_cap_mb=0.0501)["backward"] == whole


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
