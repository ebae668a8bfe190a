"""Schedules that readers type: refused in sentences, or run on real ranks and compared."""

from typing import Any

import pytest

from ddp_workbook.experiments.model_parallel import pipeline, schedules
from ddp_workbook.experiments.model_parallel.schedule_grid import EMPTY, play_schedule
from ddp_workbook.experiments.model_parallel.schedules import STARTS
from ddp_workbook.judging.pipeline_schedules import UNITS, ScheduleRefused, read

GPIPE = "F0 F1 B0 B1"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["F0 x1 B0 B1", GPIPE], "Rank 0, cell 2: 'x1' is not F, B, I or W with a micro-batch"),
        ([GPIPE, "F0 F B0 B1"], "Rank 1, cell 2: 'F' is not F"),
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


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (3, 6), (4, 8), (4, 4)])
def test_a_start_has_the_bubble_of_its_formula(start, ranks, micro_batches):
    schedule = schedules.schedule_of(start, ranks, micro_batches)
    formula = schedules.bubble_formula(start, ranks, micro_batches)
    assert schedule.bubble == pytest.approx(formula)


def test_what_1f1b_and_gpipe_hold():
    held = [
        schedules.schedule_of(start, 3, 6).in_flight for start in ("GPipe", "1F1B", "zero bubble")
    ]
    assert held == [[6, 6, 6], [3, 2, 1], [3, 3, 3]]


# On real ranks


@pytest.mark.parametrize(
    ("start", "ranks"),
    [
        ("1F1B", 3),
        pytest.param("interleaved", 2, marks=pytest.mark.push("schedules on ranks")),
        pytest.param("zero bubble", 3, marks=pytest.mark.push("schedules on ranks")),
        pytest.param("GPipe", 4, marks=pytest.mark.push("schedules on ranks")),
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
