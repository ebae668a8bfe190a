"""Schedules that readers type: refused in sentences, or run on real ranks and compared."""

from typing import Any

import pytest

from ddp_workbook.experiments.model_parallel import (
    memory_and_bubble,
    pipeline,
    schedules,
    wrong_schedules,
)
from ddp_workbook.experiments.model_parallel.schedule_grid import EMPTY, play_schedule
from ddp_workbook.experiments.model_parallel.schedules import ALL, IN_V
from ddp_workbook.judging.pipeline_schedules import UNITS, ScheduleRefused, read

GPIPE = "F0 F1 B0 B1"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["F0 x1 B0 B1", GPIPE], "Rank 0, cell 2: 'x1' is not F, B, I or W with a micro-batch"),
        ([GPIPE, "F0 F B0 B1"], "Rank 1, cell 2: 'F' is not F"),
        (["F" + "9" * 5000, GPIPE], "Rank 0, cell 1: 'F99999999999...9999999999999' is not F"),
        (["1F0 F1 B0 B1", GPIPE], "Rank 0, cell 1: stage 1 of 1F0 is on rank 1."),
        (["7F0 F1 B0 B1", GPIPE], "Rank 0, cell 1: no stage 7 of 7F0, only 0 to 1."),
        (["F0 F2 B0 B1", GPIPE], "Rank 0: F2, but the micro-batches are 0 to 1."),
        (["F0 F1 F1 B0 B1", GPIPE], "Rank 0 has F1 2 times."),
        ([GPIPE, "F0 F1 B0 I0 B1"], "Rank 1 has B0 and I0: a backward is B, or I and W."),
        (["F0 B0 B1", "F0 F1 B0"], "Rank 0 lacks F1.\nRank 1 lacks B1."),
        (["F0 F1 I0 B1", GPIPE], "Rank 0 lacks W0."),
        (["", GPIPE], "Rank 0 lacks F0, B0, F1, B1."),
        ([GPIPE, "B0 F0 F1 B1"], "Rank 1 has B0 before F0, which must come first."),
        (["F0 F1 W0 I0 B1", GPIPE], "Rank 0 has W0 before I0, which must come first."),
        (
            ["F1 F0 B1 B0", "F1 B1 F0 B0"],
            "Rank 1 has B1 after 1 of the last stage's forwards. PyTorch keeps their losses in "
            "order, looks for loss 1, counted from 0, and stops.",
        ),
        (
            ["F0 B0 F1 B1", "F1 B1 F0 B0"],
            "Each rank that is not done waits for another one: rank 0 at B0 for rank 1's B0, "
            "rank 1 at F1 for rank 0's F1.",
        ),
    ],
    ids=str,
)
def test_what_cannot_run_is_refused_in_a_sentence(lines, words):
    with pytest.raises(ScheduleRefused) as refusal:
        read(lines, 2)
    assert str(refusal.value).startswith(words)


def test_with_two_stages_a_cell_says_which():
    with pytest.raises(ScheduleRefused, match=r"rank 0 has two or more, so 0F0 or 2F0\."):
        read(["F0 B0", "1F0 3F0 3B0 1B0"], 1, [0, 1, 0, 1])


def test_holes_commas_and_small_letters_are_read():
    schedule = read([". f0, F1 - b0 _ B1", GPIPE], 2)
    assert [schedule.name(cell) for cell in schedule.cells[0]] == GPIPE.split()


SIZES = [(2, 4), (3, 6), (4, 8), (4, 4)]  # ranks and micro-batches; the last is none for a V


@pytest.mark.parametrize(
    ("start", "ranks", "micro_batches"),
    [(start, *size) for start in ALL for size in SIZES if size != (4, 4) or start not in IN_V],
)
def test_a_start_has_the_bubble_of_its_formula(start, ranks, micro_batches):
    lines = schedules.lines_of(start, ranks, micro_batches)
    schedule = read(lines, micro_batches, ALL[start].stage_ranks(ranks))
    formula = schedules.bubble_formula(start, ranks, micro_batches)
    assert schedule.bubble == pytest.approx(formula)


def test_a_v_needs_as_many_micro_batches_as_stages():
    longer = schedules.schedule_of("ZBV", 4, 4).bubble
    assert longer > schedules.bubble_formula("ZBV", 4, 4)
    with pytest.raises(ValueError, match="at least as many microbatches as stages"):
        schedules.schedule_of("DualPipeV", 4, 4)


def test_what_1f1b_and_gpipe_hold():
    starts = "GPipe", "1F1B", "zero bubble"
    held = [schedules.schedule_of(start, 3, 6).in_flight for start in starts]
    assert held == [[6, 6, 6], [3, 2, 1], [3, 3, 3]]


def test_table_of_the_further_page():
    table = memory_and_bubble.table(4, 8)
    assert (table["bubble by formula"] == table["from its cells"]).all()
    assert table["messages"].to_dict() == {
        "GPipe": 48,
        "1F1B": 48,
        "zero bubble": 48,
        "interleaved": 112,
        "ZBV": 96,
        "DualPipeV": 96,
    }
    assert table.loc["ZBV", "held, rank by rank"] == "4, 4, 4, 4"


@pytest.mark.parametrize(
    ("start", "rank", "line", "bubble", "held"),
    [  # what the page asks its readers to try: W0 put off, no halves of the last, fewer in flight
        (
            "zero bubble",
            2,
            "F0 I0 F1 I1 F2 I2 F3 I3 W1 F4 I4 W2 F5 I5 W3 W4 W5 W0",
            1 / 7,
            [3, 3, 4],
        ),
        ("zero bubble", 2, "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 F5 I5 W4 W5 W3", 0.1, [3, 3, 3]),
        (
            "interleaved",
            0,
            "0F0 0F1 0F2 3F0 3F1 3F2 0F3 3B0 0F4 3B1 0F5 3B2 "
            "3F3 0B0 3F4 0B1 3F5 0B2 3B3 3B4 3B5 0B3 0B4 0B5",
            1 / 7,
            [7, 6, 4],
        ),
    ],
    ids=["W0 last", "W3 last", "seven"],
)
def test_what_the_further_page_lets_one_try(start, rank, line, bubble, held):
    lines = schedules.lines_of(start, 3, 6)
    assert sorted(line.split()) == sorted(lines[rank].split())
    lines[rank] = line
    schedule = read(lines, 6, ALL[start].stage_ranks(3))
    assert schedule.bubble == pytest.approx(bubble) and schedule.in_flight == held


# On real ranks


def test_activations_are_held_until_w():
    """F adds what a micro-batch weighs, W takes it away, and I changes nothing."""
    picture = memory_and_bubble.held_by_halves()
    words = picture.alt.partition("each cell: ")[2].rstrip(".")
    held = {name: float(size) for name, size in (pair.split() for pair in words.split("; "))}
    one = held["F0"]
    expected = dict(zip(held, (1, 2, 2, 3, 3, 3, 2, 1, 0), strict=True))
    assert one > 100 and held == pytest.approx({n: k * one for n, k in expected.items()}, abs=3)


@pytest.mark.push("six schedules on four ranks")
def test_measured_points_lie_near_those_on_paper():
    """In memory; a bubble is measured by the clock of a machine that may be busy."""
    paper = memory_and_bubble.points(4, 8)
    for dot, ring in zip(paper, memory_and_bubble.measured_points(4, 8), strict=True):
        assert ring.held == pytest.approx(dot.held, rel=0.06) and ring.bubble > dot.bubble


def test_five_wrong_schedules_are_found_when_the_page_says():
    table = wrong_schedules.what_pytorch_says()
    assert [*table["found"]] == [*["when it is read"] * 3, "in the step, by rank 1", "never"]
    words = table["words"].to_list()
    assert words[2] == "Malformed compute schedule, can't schedule sends/recvs"
    assert words[3] == "Computing action=1F0 before receiving input"
    assert words[4].startswith("no words, but gradients are off in stage 0 by")


@pytest.mark.parametrize(
    ("start", "ranks"),
    [
        ("1F1B", 3),
        pytest.param("interleaved", 2, marks=pytest.mark.push("schedules on ranks")),
        pytest.param("zero bubble", 3, marks=pytest.mark.push("schedules on ranks")),
        pytest.param("GPipe", 4, marks=pytest.mark.push("schedules on ranks")),
        pytest.param("ZBV", 3, marks=pytest.mark.push("schedules on ranks")),
        pytest.param("DualPipeV", 2, marks=pytest.mark.push("schedules on ranks")),
    ],
)
def test_a_start_runs_as_it_says_and_equals_one_process(start, ranks):
    """Each rank computes its cells in its order, one after the other, and holds what it should."""
    schedule = schedules.schedule_of(start, ranks, 6)
    runs = pipeline.run(schedule)
    assert pipeline.verdict(schedule, runs) == "All gradients equal those of one process."
    assert [[event.cell for event in run.events] for run in runs] == schedule.cells
    assert [run.in_flight for run in runs] == schedule.in_flight
    for run in runs:  # a sleep is never too short
        for event in run.events:
            assert event.end - event.start >= UNITS[event.cell.kind] * pipeline.UNIT_S
    words = pipeline.timeline_plot(schedule, runs).alt
    assert f"on paper: bubble {schedule.bubble:.0%}" in words and "measured: bubble" in words


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["F0 F1 B0 B1", "F1 F0 B0 B1"], True),  # on the last stage, which has the losses
        (["F1 F0 B0 B1", "F0 F1 B0 B1"], False),
        (["F0 F1 B1 B0", "F0 F1 B1 B0"], False),
    ],
    ids=str,
)
def test_an_unusual_order_is_compared_with_one_process(lines, wrong):
    schedule = read(lines, 2)
    words = pipeline.verdict(schedule, pipeline.run(schedule, unit=0.0))
    assert ("differ from one process" in words and "in the order 1, 0" in words) is wrong
    assert words.startswith("All gradients equal") is not wrong


# The grid


@pytest.fixture(scope="module")
def grid() -> Any:
    return play_schedule()


def test_the_lines_follow_the_controls_and_the_ranks_the_lines(grid):
    grid.controls["start"].value, grid.controls["ranks"].value = "GPipe", 2
    grid.controls["micro_batches"].value = 4
    grid.wait()
    assert grid.values["lines"] == ("F0 F1 F2 F3 B0 B1 B2 B3",) * 2
    assert [row.layout.display for row in grid.rows] == ["", "", "none", "none"]
    grid.fields[0].value = "F0 F1 F2 F3 B0 B1 B3 B2"
    grid.wait()
    assert grid.answer.error is None and "rank 0 F0 F1 F2 F3 B0 B1 B3 B2;" in grid.answer.words


def test_buttons_fill_empty_lines(grid):
    grid.controls["start"].value, grid.controls["ranks"].value = EMPTY, 2
    forward, backward, undo = grid.rows[0].children[1:]
    for one in (forward, forward, backward, forward, undo):
        one.click()
    grid.wait()
    assert grid.fields[0].value == "F0 F1 B0"
    assert str(grid.answer.error).startswith("Rank 0 lacks")
    assert grid.answer.words == "As typed: rank 0 F0 F1 B0; rank 1 ."
    assert "Rank 0 lacks" in grid.display.value and "<img" in grid.display.value


def test_a_line_without_end_is_drawn_in_part(grid):
    grid.controls["start"].value, grid.controls["ranks"].value = EMPTY, 2
    grid.fields[0].value = "F0 " * 3000
    grid.wait()
    assert str(grid.answer.error) == "Rank 0 has F0 3000 times."
    assert grid.answer.words.startswith("As typed, the first 100 cells: rank 0 F0 F0 ")
