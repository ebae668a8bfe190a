"""Chapter 08's page: kills, what a save lacks, killed saves, signals, how often to save."""

import json
import threading
import time

import numpy as np
import pytest

from ddp_workbook.errors import RankFailed
from ddp_workbook.experiments.checkpoint_and_recover import (
    kill,
    often,
    state,
    told,
    torn,
    watched,
)
from ddp_workbook.launcher.launch import launch
from tests.leftovers import no_rank_left, wait_until  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def recovery():
    return kill.play_recovery()


def test_a_killed_training_without_saves_is_lost(no_rank_left):  # noqa: F811
    runs = kill.Runs(agent=False)
    story = runs(None, None, victim=3)
    assert [failure.rank for failure in story.failures] == [3] and story.trained is None
    (attempt,) = story.attempts
    assert list(attempt.losses().index) == [*range(1, kill.AT + 1)]
    assert all(later > 0 for later in attempt.noticed())
    assert "Rank 3 was killed after step 17" in kill.story_plot(story).alt


@pytest.mark.push("claims of the pages that take long")
def test_the_agent_starts_again_and_ends_the_same(no_rank_left):  # noqa: F811
    story = kill.Runs(agent=True)(None, None, victim=1, every=5)
    first, second = (attempt.losses() for attempt in story.attempts)
    assert list(second.index) == [*range(16, kill.STEPS + 1)]
    assert (first[[16, 17]] == second[[16, 17]]).all()
    words = kill.story_plot(story).alt
    assert "2 steps were computed again. The end is that of an uninterrupted run" in words


def steps_so_far(runs: kill.Runs) -> int:
    """Of the attempt that runs, if it has begun."""
    return len(runs.attempts[-1].losses()) if runs.attempts else 0


@pytest.mark.push("claims of the pages that take long")
def test_a_button_kills_a_rank_of_the_run(recovery, no_rank_left):  # noqa: F811
    """While it runs, the picture moves."""
    start, *ranks = recovery.buttons
    before = recovery.shown.value
    start.click()
    runs = recovery.run
    assert wait_until(lambda: runs.number > 1 and steps_so_far(runs) > 2, 60)
    assert wait_until(lambda: recovery.shown.value != before, 60)
    ranks[2].click()
    recovery.wait()
    assert recovery.answer.error is None
    assert "Rank 2 was killed after step " in recovery.answer.words
    assert "that of an uninterrupted run, bit for bit" in recovery.answer.words
    ranks[0].click()  # nothing runs: nothing happens
    assert "Rank 2" in recovery.answer.words


@pytest.mark.parametrize("by_hand", [True, False])
def test_ranks_notice_a_kill_whoever_did_it(tmp_path, by_hand):
    """The reader's kill is known here, that of an accident by a note of the rank itself."""
    attempt = kill.Attempt(tmp_path / "attempt")
    attempt.killed = 10.0 if by_hand else 0.0
    notes = {1: {"event": kill.ERROR, "time": 10.5}}
    if not by_hand:
        notes[2] = {"event": kill.KILLED, "time": 10.0}
    for rank, row in notes.items():
        (attempt.folder / str(rank)).write_text(f"{watched.SAID}{json.dumps(row)}\n")
    assert attempt.noticed() == [500.0]


@pytest.mark.push("claims of the pages that take long")
def test_a_run_to_reach_into_can_be_stopped(recovery, no_rank_left):  # noqa: F811
    recovery.buttons[0].click()
    begun = time.monotonic()
    assert wait_until(lambda: steps_so_far(recovery.run), 60)
    recovery.stop()
    recovery.wait()
    assert time.monotonic() - begun < 60 and recovery.answer.error is not None
    recovery.controls["victim"].value = kill.NOBODY
    recovery.wait()
    assert recovery.answer.error is None and "was killed" not in recovery.answer.words


@pytest.mark.push("claims of the pages that take long")
def test_what_a_save_lacks_shows_where_the_page_says():
    table = state.all_left_out().set_index("the save lacks")
    on_0, on_any, weights, evaluation, alike = (table[name] for name in table)
    assert {on_0[state.NOTHING], on_any[state.NOTHING]} == {state.NONE}
    assert {weights[state.NOTHING], evaluation[state.NOTHING]} == {state.EQUAL}
    hidden = [name for name in state.LEFT_OUT[1:] if weights[name] == state.EQUAL]
    assert hidden == [state.STATISTICS] and evaluation[state.STATISTICS] != state.EQUAL
    after = f"half batch {state.SAVED + 1}"  # the first one after the interruption
    late = {state.OPTIMIZER, state.SCHEDULER, state.GRADIENTS, state.STATISTICS}
    assert {name for name in state.LEFT_OUT[1:] if on_any[name] != after} == late
    assert on_any[state.RANDOM_0] == after != on_0[state.RANDOM_0]
    by_rank = {state.RANDOM, state.STATISTICS, state.GRADIENTS}
    assert {name for name in table.index if alike[name] == "no"} == by_rank


@pytest.mark.push("claims of the pages that take long")
def test_a_renamed_save_is_never_torn():
    found = torn.killed_saves()
    assert (found.sum(axis=1) == torn.KILLS).all()
    assert found.loc["another name, fsync, rename", torn.TORN] == 0
    assert found.loc["torch.save to the final path", torn.TORN] > 0


@pytest.mark.parametrize("who", [0, 3])
def test_all_leave_after_the_same_step(who):
    left = launch(told.leave, who, told.AGREED, ranks=4)
    assert len({one.steps for one in left}) == 1 and left[0].steps < told.STEPS
    assert [one.heard for one in left] == [rank == who for rank in range(4)]


def test_a_rank_that_leaves_alone_is_named():
    with pytest.raises(RankFailed, match="rank 2 had already returned"):
        launch(told.leave, 2, told.ALONE, ranks=4)


def test_youngs_interval_loses_least_and_the_simulation_agrees():
    """The ready exercise: BLOOM saved in 40 s; with a failure in four days every 1.5 h is best."""
    assert often.young(40, 4 * 24 * 3600) / 3600 == pytest.approx(1.46, abs=0.01)
    for save, gpus in ((60, 16_384), (5, 512), (1, 8)):
        table = often.shares(save, gpus)
        best = often.young(save, often.between_failures(gpus)) / 60
        if table.index[0] < best < table.index[-1]:
            assert table["both"].idxmin() == pytest.approx(best, rel=0.35)
        low = table[table["both"] < 20]
        assert (low["simulated"] - low["both"]).abs().max() < 3


def test_the_page_is_right_about_its_examples():
    """BLOOM's 384 GPUs and saves of 40 s; 100,000 GPUs and saves of 60 s."""
    bloom = often.between_failures(384)
    best = often.young(40, bloom)
    assert best / 3600 == pytest.approx(1.7, abs=0.01)
    shares = often.lost(np.array([best, 3 * 3600]), 40, bloom).sum(axis=1)
    assert [round(100 * share, 1) for share in shares] == [1.3, 1.5]
    many = often.between_failures(100_000)
    share = often.lost(np.array([often.young(60, many)]), 60, many).sum(axis=1)[0]
    assert share == pytest.approx(0.25, abs=0.01)


def test_published_failures_are_counts():
    table = often.published().set_index("training")
    assert table.loc["Llama 3 405B", "one every"] == "3.1 h"
    assert table["GPU-hours for one"].tolist() == [51_000, 25_000]


def test_cancelled_before_it_starts(no_rank_left):  # noqa: F811
    stop = threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        kill.Runs(agent=True)(None, stop, victim=2)
