"""Chapter 08's page: kills, what a save lacks, killed saves, signals, how often to save."""

import json
import threading
import time

import numpy as np
import pytest

from ddp_workbook.experiments.checkpoint_and_recover import (
    graceful_stop,
    killed_ranks,
    save_interval,
    torn_files,
    traced_training,
    what_to_save,
)
from manyranks.errors import RankFailed
from manyranks.launcher.launch import launch
from tests.leaks import no_rank_left, wait_until  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def recovery():
    return killed_ranks.play_recovery()


def test_a_killed_training_without_saves_is_lost(no_rank_left):  # noqa: F811
    runs = killed_ranks.Runs(agent=False)
    outcome = runs(None, None, victim=3)
    assert [failure.rank for failure in outcome.failures] == [3] and outcome.result is None
    (attempt,) = outcome.attempts
    assert list(attempt.losses().index) == [*range(1, killed_ranks.KILL_AFTER_STEP + 1)]
    assert all(later > 0 for later in attempt.detection_ms())
    assert "Rank 3 was killed after step 17" in killed_ranks.outcome_plot(outcome).alt


@pytest.mark.push("claims of the pages that take long")
def test_the_agent_starts_again_and_ends_the_same(no_rank_left):  # noqa: F811
    outcome = killed_ranks.Runs(agent=True)(None, None, victim=1, every=5)
    first, second = (attempt.losses() for attempt in outcome.attempts)
    assert list(second.index) == [*range(16, killed_ranks.STEPS + 1)]
    assert (first[[16, 17]] == second[[16, 17]]).all()
    words = killed_ranks.outcome_plot(outcome).alt
    assert "2 steps were computed again. The end is that of an uninterrupted run" in words


def steps_so_far(runs: killed_ranks.Runs) -> int:
    """Of the attempt that runs, if it has begun."""
    return len(runs.attempts[-1].losses()) if runs.attempts else 0


@pytest.mark.push("claims of the pages that take long")
def test_a_button_kills_a_rank_of_the_run(recovery, no_rank_left):  # noqa: F811
    """While it runs, the picture moves."""
    start, *ranks = recovery.buttons
    before = recovery.display.value
    start.click()
    runs = recovery.run
    assert wait_until(lambda: runs.number > 1 and steps_so_far(runs) > 2, 60)
    assert wait_until(lambda: recovery.display.value != before, 60)
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
    attempt = killed_ranks.Attempt(tmp_path / "attempt")
    attempt.kill_time = 10.0 if by_hand else 0.0
    notes = {1: {"event": killed_ranks.ERROR, "time": 10.5}}
    if not by_hand:
        notes[2] = {"event": killed_ranks.KILLED, "time": 10.0}
    for rank, row in notes.items():
        (attempt.folder / str(rank)).write_text(
            f"{traced_training.EVENT_PREFIX}{json.dumps(row)}\n"
        )
    assert attempt.detection_ms() == [500.0]


@pytest.mark.push("claims of the pages that take long")
def test_a_run_to_reach_into_can_be_stopped(recovery, no_rank_left):  # noqa: F811
    recovery.buttons[0].click()
    start_time = time.monotonic()
    assert wait_until(lambda: steps_so_far(recovery.run), 60)
    recovery.stop()
    recovery.wait()
    assert time.monotonic() - start_time < 60 and recovery.answer.error is not None
    recovery.controls["victim"].value = killed_ranks.NOBODY
    recovery.wait()
    assert recovery.answer.error is None and "was killed" not in recovery.answer.words


@pytest.mark.push("claims of the pages that take long")
def test_what_a_save_lacks_shows_where_the_page_says():
    table = what_to_save.omission_table().set_index("the save lacks")
    on_0, on_any, weights, evaluation, alike = (table[name] for name in table)
    assert {on_0[what_to_save.NOTHING], on_any[what_to_save.NOTHING]} == {what_to_save.NONE}
    assert {weights[what_to_save.NOTHING], evaluation[what_to_save.NOTHING]} == {what_to_save.EQUAL}
    hidden = [name for name in what_to_save.OMISSIONS[1:] if weights[name] == what_to_save.EQUAL]
    assert (
        hidden == [what_to_save.STATISTICS]
        and evaluation[what_to_save.STATISTICS] != what_to_save.EQUAL
    )
    after = (
        f"half batch {what_to_save.PARTS_BEFORE_SAVE + 1}"  # the first one after the interruption
    )
    late = {
        what_to_save.OPTIMIZER,
        what_to_save.SCHEDULER,
        what_to_save.GRADIENTS,
        what_to_save.STATISTICS,
    }
    assert {name for name in what_to_save.OMISSIONS[1:] if on_any[name] != after} == late
    assert on_any[what_to_save.RANDOM_0] == after != on_0[what_to_save.RANDOM_0]
    by_rank = {what_to_save.RANDOM, what_to_save.STATISTICS, what_to_save.GRADIENTS}
    assert {name for name in table.index if alike[name] == "no"} == by_rank


@pytest.mark.push("claims of the pages that take long")
def test_a_renamed_save_is_never_torn():
    found = torn_files.killed_saves()
    assert (found.sum(axis=1) == torn_files.KILLS).all()
    assert found.loc["another name, fsync, rename", torn_files.TORN] == 0
    assert found.loc["torch.save to the final path", torn_files.TORN] > 0


@pytest.mark.parametrize("who", [0, 3])
def test_all_leave_after_the_same_step(who):
    left = launch(graceful_stop.run_until_signal, who, graceful_stop.AGREEMENT, ranks=4)
    assert len({one.steps for one in left}) == 1 and left[0].steps < graceful_stop.STEPS
    assert [one.signalled for one in left] == [rank == who for rank in range(4)]


def test_a_rank_that_leaves_alone_is_named():
    outcome = graceful_stop.stop_ranks(2, graceful_stop.ALONE)
    assert isinstance(outcome, RankFailed)
    assert "rank 2 had already returned" in str(graceful_stop.exit_report(outcome))


def test_what_ranks_that_agree_show():
    left = [graceful_stop.LoopExit(7, rank == 1) for rank in range(4)]
    table = graceful_stop.exit_report(left).data
    assert table["left after step"].tolist() == [7] * 4
    assert table["heard the signal"].tolist() == ["no", "yes", "no", "no"]


def test_youngs_interval_loses_least_and_the_simulation_agrees():
    """The ready exercise: BLOOM saved in 40 s; with a failure in four days every 1.5 h is best."""
    assert save_interval.young_interval(40, 4 * 24 * 3600) / 3600 == pytest.approx(1.46, abs=0.01)
    for save, gpus in ((60, 16_384), (5, 512), (1, 8)):
        table = save_interval.shares(save, gpus)
        best = save_interval.young_interval(save, save_interval.mtbf_s(gpus)) / 60
        both = table["saving"] + table["computed again"]
        assert both.idxmin() == pytest.approx(best, rel=0.01)
        assert both.iloc[0] == pytest.approx(both.iloc[-1])
        assert both.iloc[0] == pytest.approx(4 * both.min(), rel=0.02)
        assert (table["simulated"] - both)[both < 20].abs().max() < 3
        assert "Young: save every" in save_interval.shares_plot(table, save, gpus).alt


def test_every_position_of_the_sliders_has_a_picture():
    for save, gpus in ((600, 100_000), (600, 8), (1, 100_000)):
        table = save_interval.shares(save, gpus)
        assert len(table) > 2 and save_interval.shares_plot(table, save, gpus).alt


def test_the_page_is_right_about_its_examples():
    """BLOOM's 384 GPUs and saves of 40 s; 100,000 GPUs and saves of 60 s."""
    bloom = save_interval.mtbf_s(384)
    best = save_interval.young_interval(40, bloom)
    assert best / 3600 == pytest.approx(1.7, abs=0.01)
    shares = save_interval.lost_share(np.array([best, 3 * 3600]), 40, bloom).sum(axis=1)
    assert [round(100 * share, 1) for share in shares] == [1.3, 1.5]
    many = save_interval.mtbf_s(100_000)
    share = save_interval.lost_share(
        np.array([save_interval.young_interval(60, many)]), 60, many
    ).sum(axis=1)[0]
    assert share == pytest.approx(0.25, abs=0.01)


def test_published_failures_are_counts():
    table = save_interval.published_failures().set_index("training run")
    assert table.loc["Llama 3 405B", "one every"] == "3.1 h"
    assert table["GPU-hours for one"].tolist() == [51_000, 25_000]


def test_cancelled_before_it_starts(no_rank_left):  # noqa: F811
    stop = threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        killed_ranks.Runs(agent=True)(None, stop, victim=2)
