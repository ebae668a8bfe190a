"""Interrupts that come while ranks are being ended: nothing is left half done."""

import os
import signal
from pathlib import Path

import pytest

from manyranks.errors import RankFailed
from manyranks.launcher import fork_server
from manyranks.launcher.interrupts import run_uninterrupted
from manyranks.launcher.launch import launch
from tests.leaks import alive, wait_until
from tests.workers import in_kernels


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupted_step_runs_to_its_end_once_and_the_interrupt_is_raised_after_it():
    done = []

    def step(words: str) -> None:
        done.append("begun")
        interrupt()
        interrupt()
        done.append(words)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_uninterrupted(step, "ended")
    assert done == ["begun", "ended"] and signal.getsignal(signal.SIGINT) is before


def test_an_error_that_is_on_its_way_is_not_replaced_by_the_interrupt():
    def work() -> None:
        try:
            raise RankFailed("the rank's own")
        finally:
            run_uninterrupted(interrupt)

    with pytest.raises(RankFailed, match="the rank's own"):
        work()


def test_an_error_of_the_step_is_raised_and_the_handler_put_back():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError):
        run_uninterrupted(lambda: 1 / 0)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_rank_whose_reaping_is_interrupted_is_not_counted_as_running(tmp_path, monkeypatch):
    """While one counts as running, what ranks leave in other sessions is not swept up."""
    reap = fork_server.reap

    def interrupted_reap(process) -> None:
        interrupt()
        reap(process)

    monkeypatch.setattr(fork_server, "reap", interrupted_reap)
    with pytest.raises(KeyboardInterrupt):
        launch(in_kernels.leaves_a_session, str(tmp_path), ranks=2)
    assert not fork_server.RUNNING_PIDS
    sessions = [int(Path(tmp_path, f"session{rank}").read_text()) for rank in range(2)]
    assert wait_until(lambda: not alive(sessions))
