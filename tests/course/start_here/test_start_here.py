"""Page 00: its picture has the values of real ranks, also where each rank sees a GPU."""

import ast

import nbformat
import pytest

from ddp_workbook import launch
from ddp_workbook.experiments.start_here import sum_player
from ddp_workbook.experiments.start_here.first_sum import (
    DIES,
    JOINS,
    LATE,
    OTHER_CALL,
    SHAPE,
    SumResult,
    play_sum,
    run_sum,
)
from ddp_workbook.experiments.start_here.sum_player import stuck_plot, sum_plot
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
