"""Page 00: its picture has the values of real ranks, also where each rank sees a GPU."""

import ast

import nbformat
import pytest

from ddp_workbook import launch
from ddp_workbook.experiments.start_here import first_sum
from ddp_workbook.experiments.start_here.first_sum import play_sum, stuck_plot, sum_plot
from ddp_workbook.experiments.start_here.sum_of_ranks import (
    DIES,
    JOINS,
    LATE,
    OTHER_CALL,
    SHAPE,
    SumResult,
    run_sum,
)
from manyranks.diagnostics import advice
from manyranks.diagnostics.evidence import State
from manyranks.diagnostics.positions import Position
from manyranks.errors import RanksHung
from tests.cells import python_of
from tools import book
from tools.set_up import ROOT


def test_four_processes_have_one_sum():
    of_ranks = launch(run_sum, ranks=4)
    assert [results.before for results in of_ranks] == [1, 2, 3, 4]
    assert [results.after for results in of_ranks] == [10] * 4
    assert len({results.process for results in of_ranks}) == 4


def words_in(picture) -> list[str]:
    return [text.get_text() for text in picture.axes.texts]


def test_picture_and_words_have_the_values_that_they_are_given():
    of_ranks = [SumResult(71, 1.5, 4.0, 0.25), SumResult(72, 2.5, 4.0, 2.01)]
    picture = sum_plot(of_ranks)
    shown = words_in(picture)
    assert "rank 1: x = 2.5\nprocess 72" in shown and shown.count("x = 4") == 2
    assert "waits 2.0 s" in shown and not any("0.2" in words for words in shown)  # not noise
    assert "numbered 71, 72" in picture.alt and "begin with 1.5, 2.5" in picture.alt
    assert "longest call of all_reduce took 2.01 s" in picture.alt


def test_each_rank_brings_what_its_slider_says():
    results = launch(run_sum, ranks=4, x_0=-5, x_3=20)
    assert [one.before for one in results] == [-5, 2, 3, 20] and results[2].after == 20
    late = launch(run_sum, ranks=4, rank_3=LATE)
    assert max(one.seconds for one in late[:3]) > 1.5 and [one.after for one in late] == [10] * 4
    assert LATE in words_in(sum_plot(late, rank_3=LATE))
    assert LATE not in words_in(sum_plot(late))


@pytest.mark.parametrize(
    ("how", "words", "stood"),
    [
        (OTHER_CALL, "rank 3  waits in barrier", "rank 3 waits in barrier."),
        (DIES, "Rank 3 (of 4) was ended by SIGKILL", "rank 2 was stopped; rank 3 is killed."),
        (SHAPE, "different shapes or dtypes", "rank 3 waits in all_reduce."),
    ],
)
def test_each_way_of_rank_3_has_its_report_and_its_picture(how, words, stood):
    play = play_sum()
    play.controls["rank_3"].value = how
    play.wait()
    assert words in play.report.value and words not in play.display.value
    assert stood in play.display.value and stood in play.answer.words
    play.controls["rank_3"].value = JOINS
    play.wait()
    assert play.report.value == "" and "Afterwards the ranks have 10" in play.answer.words


def test_ranks_that_stand_in_one_call_share_a_box():
    places = [Position(rank, State.WAITING, call="all_reduce") for rank in range(3)]
    places.append(Position(3, State.WAITING, call="barrier"))
    error = RanksHung("", positions=places)
    picture = stuck_plot(error, ranks=4, rank_3=OTHER_CALL, x_0=1, x_1=2, x_2=3, x_3=4)
    assert words_in(picture).count("waits in all_reduce") == 1
    assert words_in(picture).count("waits in barrier") == 1
    assert "rank 2 waits in all_reduce; rank 3 waits in barrier" in picture.alt


def test_a_slider_is_as_high_as_its_lane():
    play = play_sum()
    play._repr_mimebundle_()
    *sliders, _ = play.controls.values()
    assert [one.layout.height for one in sliders] == [f"{first_sum.LANE * 96:.0f}px"] * 4


PRETEND = """import os, sys
os.environ["PYTHONPATH"] = {root!r}  # for the fork server
sys.path.insert(0, {root!r})
from ddp_workbook import launch
from manyranks.launcher import fork_server
fork_server.preload("tests.workers.visible_gpu")
from tests.workers import visible_gpu
launch(visible_gpu.without_a_backend, ranks=2, as_if_gpus=False)"""


@pytest.mark.push("pages in a kernel")
def test_it_runs_where_torch_would_choose_the_backend_of_gpus(tmp_path):
    """`init_process_group()` without a backend is simulated as on a node with a GPU a rank."""
    path = book.copy_layout(tmp_path) / "00_start_here.ipynb"
    book.begin_with(path, PRETEND.format(root=str(ROOT)))
    page = book.execute(path)
    refused = ["No backend type associated with device type cpu"] * 2
    assert ast.literal_eval(page.cells[0].outputs[0].data["text/plain"]) == refused
    assert book.errors(page) == []


def test_a_rank_that_sees_a_gpu_is_told_why_its_tensor_is_refused():
    words = advice.for_error("RuntimeError", "No backend type associated with device type cpu")
    assert 'init_process_group("cpu:gloo,cuda:nccl")' in words


def code_that_readers_run() -> list[tuple[str, str]]:
    """(place, code) of cells and of the package's files; magics are left out."""
    files = [(str(p.relative_to(ROOT)), p.read_text()) for p in ROOT.glob("src/**/*.py")]
    cells = [
        (f"{page.name}, {cell.id}", python_of(cell.source))
        for page in book.NOTEBOOKS
        for cell in nbformat.read(page, 4).cells
        if cell.cell_type == "code"
    ]
    return files + cells


@pytest.mark.push("pages in a kernel")
def test_nothing_leaves_the_choice_of_the_backend_to_torch():
    """With a GPU visible torch takes the GPU's alone, which refuses tensors on the CPU."""
    calls = [
        (place, call)
        for place, code in code_that_readers_run()
        for call in ast.walk(ast.parse(code))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("init_process_group")
    ]
    assert len(calls) > 10
    chosen = [c for _, c in calls if c.args or any(k.arg in ("backend", None) for k in c.keywords)]
    assert [place for place, call in calls if call not in chosen] == []
