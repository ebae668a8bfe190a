"""A launch that is followed by evidence: hung is what is proven, whatever the clock says."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from manyranks.diagnostics.evidence import Evidence, State
from manyranks.errors import HangUndecided, Proof, RankFailed, RanksHung
from manyranks.launcher import activity
from manyranks.launcher import launch as launching_of_ranks
from manyranks.launcher.activity import Reading, ThreadStats
from manyranks.launcher.calls import Call
from manyranks.launcher.hang_detection import HangDetector, HangLimits, required_stall_of_rank_s
from manyranks.launcher.launch import run_ranks
from manyranks.launcher.rendezvous import loopback_store
from tests.hang_proofs import warm  # noqa: F401 (a fixture)
from tests.leaks import no_rank_left, wait_until  # noqa: F401
from tests.workers import hanging_import, hangs, launching, standing

SOON = HangLimits(idle=1, polling=2, processor=1)


@pytest.fixture
def busy() -> Iterator[None]:
    """Six busy loops beside the ranks, ended by their own ids."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    yield
    for loop in loops:
        loop.kill()
    for loop in loops:
        loop.wait()


def follow(worker, *args, ranks=2, limits=SOON):
    return run_ranks(Call(worker, args), ranks, quiet=True, hang_limits=limits)


def hang(worker, ranks=2, limits=SOON) -> RanksHung:
    with pytest.raises(RanksHung) as caught:
        follow(worker, ranks=ranks, limits=limits)
    return caught.value


@pytest.mark.parametrize(
    "worker", [hangs.two_collectives, hangs.both_receive, standing.waits_for_work]
)
def test_ranks_that_wait_for_each_other(worker):
    """Measured: 0.95 s, of which 0.6 s are the standstill."""
    start = time.monotonic()
    error = hang(worker, limits=HangLimits())
    assert time.monotonic() - start < 20
    assert error.proof is Proof.DEADLOCK and 0.4 <= error.seconds < 10
    assert all(place.line for place in error.positions)
    assert "2 of 2 ranks waited for other ranks, and nothing moved for " in str(error)


def test_ranks_that_wait_for_each_other_on_a_busy_machine(busy):
    """Measured: 1.0 to 1.2 s beside 6 loops on 2 cores, 1.8 to 2.4 s beside 20."""
    start = time.monotonic()
    error = hang(hangs.two_collectives, limits=HangLimits())
    assert time.monotonic() - start < 24
    assert error.proof is Proof.DEADLOCK and error.mismatches


@pytest.mark.parametrize(
    ("worker", "answer"),
    [
        pytest.param(standing.computes_on_rank_1, [3.0, 3.0], marks=pytest.mark.push("slow ranks")),
        *(
            pytest.param(
                *more, marks=pytest.mark.release("other ways to be slow on a busy machine")
            )
            for more in (
                (standing.child_computes, ["done"] * 2),
                (standing.short_sleeps, [20.0, 20.0]),
                (standing.passes_on, [2000, 2000]),
                (standing.large_broadcasts, [1.0, 1.0]),
            )
        ),
    ],
)
def test_slow_is_not_hung(busy, worker, answer):
    """One rank computes, or a child of it; all sleep by turns; data that takes its time."""
    assert follow(worker, limits=HangLimits(patience=600)) == answer


def test_new_group_is_given_longer():
    """It asks the launch's store, and that lives in another process."""
    error = hang(standing.new_group_by_one, limits=HangLimits(new_group=1.5))
    assert error.proof is Proof.DEADLOCK and error.seconds >= 1.5


def test_connecting_is_given_longest():
    limits = HangLimits(idle=0.5, connecting=2, polling=60)
    error = hang(standing.one_returns_before_it_connects, limits=limits)
    assert error.proof is Proof.DEADLOCK and error.seconds >= 2


def test_a_loop_that_does_not_end():
    error = hang(standing.loop_on_rank_1)
    assert error.proof is Proof.PROCESSOR_TIME and error.rank == 1 and 1 < error.seconds < 10
    assert "2 of 2 ranks did not finish; rank 1 computed for " in str(error)


@pytest.mark.parametrize("worker", [standing.child_loops, standing.loop_in_packing])
def test_a_loop_elsewhere_that_does_not_end(worker):
    assert hang(worker).proof is Proof.PROCESSOR_TIME


@pytest.mark.parametrize(
    "worker", [standing.sleeps, standing.sleeps_in_a_thread, hangs.stopped, hangs.objects]
)
def test_nothing_happens(worker):
    error = hang(worker)
    assert error.proof is Proof.IDLE and error.seconds >= 1
    assert "2 of 2 ranks did not finish, and nothing moved for " in str(error)


def test_idle_takes_as_long_as_it_says():
    error = hang(standing.sleeps, limits=HangLimits(idle=3))
    assert error.proof is Proof.IDLE and 3 <= error.seconds < 30


@pytest.mark.parametrize("worker", [standing.polls_on_rank_0, hanging_import.worker])
def test_a_rank_that_polls(worker):
    error = hang(worker)
    assert error.proof is Proof.IDLE and error.seconds >= 2


@pytest.mark.release("other ways to be slow on a busy machine")
def test_one_rank_polls_on_a_busy_machine(busy):
    """It queues for each of its turns."""
    assert hang(standing.polls_on_rank_0).proof is Proof.IDLE


def test_several_that_poll_are_given_longer():
    """Ranks that send and receive now and then look the same."""
    error = hang(standing.polls_everywhere)
    assert error.proof is Proof.IDLE and error.seconds >= 6


def test_patience_ends():
    said = []
    limits = HangLimits(slow=0.3, patience=1.5, processor=60, on_slow=lambda: said.append("slow"))
    with pytest.raises(HangUndecided, match="too busy to tell") as caught:
        follow(standing.loop_on_rank_1, limits=limits)
    assert said == ["slow"] and caught.value.seconds == 1.5
    assert not isinstance(caught.value, RankFailed)


def test_a_standstill_is_no_sign_of_a_busy_machine(monkeypatch):
    """It may well be said before the ranks stand still, where they take long to come to that."""
    watches, stood = [], []
    monkeypatch.setattr(
        launching_of_ranks,
        "HangDetector",
        lambda limits: watches.append(HangDetector(limits)) or watches[-1],
    )
    say = lambda: stood.append(bool(watches[0].standstill.readings))  # noqa: E731
    hang(standing.sleeps, limits=HangLimits(idle=2, slow=0.5, on_slow=say))
    assert True not in stood


def test_a_rank_waits_for_one_that_has_returned():
    """As without evidence: the one that has returned closes its connections."""
    with pytest.raises(RankFailed) as caught:
        follow(standing.returns_before_the_barrier, limits=HangLimits())
    assert not isinstance(caught.value, RanksHung) and caught.value.mismatches


def test_a_failure_is_a_failure():
    with pytest.raises(RankFailed, match="no such digit") as caught:
        follow(launching.raise_on, 1, limits=HangLimits())
    assert not isinstance(caught.value, RanksHung)


def test_the_clock_alone_is_a_proof_of_another_kind():
    with pytest.raises(RanksHung) as caught:
        run_ranks(Call(standing.sleeps), 2, timeout=0.5, quiet=True)
    assert caught.value.proof is Proof.TIME and caught.value.seconds == 0.5


def test_where_no_queue_can_be_seen(monkeypatch):
    """As on macOS and Windows: by processor time only, and 5 s at least."""
    monkeypatch.setattr(activity, "HAS_SCHEDSTAT", False)
    error = hang(hangs.two_collectives)
    assert error.proof is Proof.DEADLOCK and error.seconds >= 5
    assert hang(standing.loop_on_rank_1).proof is Proof.PROCESSOR_TIME


# What was read of the threads


def reading(time: float = 0.0, **threads: tuple) -> Reading:
    """`worker` and `loop`, each (seconds on a processor, turns, state)."""
    numbers = {"worker": 1, "loop": 2}
    made = {
        numbers[n]: ThreadStats(run, 0.0, turns, state)
        for n, (run, turns, state) in threads.items()
    }
    return Reading(time, 1, made)


@pytest.mark.parametrize(
    ("worker", "loop", "stands", "is_settled"),
    [
        ((1.0, 50, "S"), (0.0, 9, "S"), True, True),
        ((1.0, 50, "S"), (0.001, 49, "S"), True, True),  # gloo's loop looks around
        ((1.0, 50, "S"), (0.001, 49, "R"), True, True),  # and is about to, once more
        ((1.0, 50, "S"), (0.0, 9, "R"), True, False),  # it has waited all the time
        ((1.0, 50, "S"), (0.001, 10, "S"), True, False),  # it had one turn: for what?
        ((1.0, 50, "S"), (0.01, 13, "S"), True, False),  # long turns: data come in
        ((1.0, 50, "S"), (0.1, 49, "S"), False, False),
        ((1.0, 51, "S"), (0.0, 9, "S"), False, False),
        ((1.0, 50, "R"), (0.0, 9, "S"), False, False),
        ((1.0, 50, "D"), (0.0, 9, "S"), False, True),
        ((1.0, 50, "T"), (0.0, 9, "S"), True, True),
    ],
)
def test_what_is_a_standstill(worker, loop, stands, is_settled):
    before = reading(0.0, worker=(1.0, 50, "S"), loop=(0.0, 9, "S"))
    now = reading(0.4, worker=worker, loop=loop)
    assert activity.no_progress(before, now) is stands
    assert activity.no_starvation(before, now) is is_settled


@pytest.mark.parametrize(
    ("worker", "loop", "idles", "polls"),
    [
        ((1.0, 50, "S"), (0.0, 9, "S"), True, True),
        ((1.01, 100, "S"), (0.0, 9, "S"), True, True),  # 0.2 ms a turn
        ((1.05, 60, "S"), (0.0, 9, "S"), True, False),  # 5 ms a turn: it computes
        ((1.2, 1050, "R"), (0.0, 9, "S"), False, False),  # a fifth of its time
        ((1.0, 50, "S"), (0.2, 999, "S"), False, False),
    ],
)
def test_what_polls(worker, loop, idles, polls):
    """In a second."""
    before = reading(0.0, worker=(1.0, 50, "S"), loop=(0.0, 9, "S"))
    now = reading(1.0, worker=worker, loop=loop)
    assert activity.idles(before, now) is idles
    assert activity.polls(before, now) is polls


def test_a_thread_that_comes_or_goes_is_no_standstill():
    alone = reading(worker=(1.0, 50, "S"))
    assert not activity.no_progress(alone, reading(1.0, worker=(1.0, 50, "S"), loop=(0.0, 0, "S")))


def test_the_store_is_looked_at():
    """Its thread is in this process, under the name that PyTorch gives it."""
    store = loopback_store()
    stats = [Path(f"/proc/self/task/{n}/stat").read_bytes() for n in os.listdir("/proc/self/task")]
    assert any(activity.STORE in stat for stat in stats)
    assert wait_until(lambda: not activity.store_is_queued())  # at first it may still be starting
    del store


# Where a rank stands


@pytest.mark.parametrize(
    ("innermost", "seconds"),
    [
        ([("torch/distributed/distributed_c10d.py", "all_reduce")], 0.4),
        ([("torch/_ops.py", "__call__"), ("torch/distributed/distributed_c10d.py", "recv")], 0.4),
        ([("torch/distributed/distributed_c10d.py", "new_group")], 2.0),
        ([("torch/distributed/distributed_c10d.py", "init_process_group")], 20.0),
        ([("torch/distributed/distributed_c10d.py", "monitored_barrier")], 5.0),
        ([("torch/autograd/graph.py", "_engine_run_backward")], 0.4),
        ([(threading.__file__, "join"), ("torch/nn/parallel/parallel_apply.py", "apply")], 5.0),
        ([("torch/nn/functional.py", "linear")], 5.0),
        ([("torch/distributed/elastic/rendezvous/utils.py", "_delay")], 5.0),
    ],
)
def test_how_long_a_rank_may_stand(innermost, seconds):
    site = Path(torch.__file__).parents[1]
    stack = [(str(site / file), 1, name) for file, name in innermost]
    rank = Evidence(0, State.WORKING, stack=stack)
    assert required_stall_of_rank_s(rank, HangLimits()) == seconds
