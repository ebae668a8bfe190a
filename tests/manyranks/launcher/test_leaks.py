"""Nothing is left by a launch: no process, no thread, no open file, no temporary file."""

import os
import tempfile
from pathlib import Path

import pytest

from benchmarks import many_launches
from manyranks.errors import RankFailed
from manyranks.launcher import fork_server, preconditions
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks
from tests.hang_proofs import warm  # noqa: F401 (a fixture)
from tests.leaks import descriptors, no_rank_left, threads, wait_until  # noqa: F401
from tests.workers import faults, launching


def belongings() -> dict:
    """What this process and its fork server hold."""
    server = fork_server.server_pid()
    return {
        "descriptors": sorted(descriptors().values()),
        "server's": len(os.listdir(f"/proc/{server}/fd")),
        "threads": threads(),
        "temporary files": sorted(os.listdir(tempfile.gettempdir())),
    }


def as_before(before: dict) -> bool:
    """True once all is as it was; the fork server closes a pipe just after it tells of an end."""
    if wait_until(lambda: belongings() == before):
        return True
    after = belongings()
    raise AssertionError(
        {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "count",
    [8, pytest.param(100, marks=pytest.mark.release("many launches in a row"))],
)
def test_launches_in_a_row_leave_nothing(count):
    """1 in 10 fails on purpose: none hangs, each verdict is right, nothing is left anywhere."""
    found = many_launches.run(count)
    assert {name: found[name] for name in many_launches.COUNTS} == dict.fromkeys(
        many_launches.COUNTS, 0
    ), found["examples"]
    assert sum(found["kinds"].values()) == count // 10


def test_an_error_that_is_kept_keeps_no_socket_and_no_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, kept = belongings(), []
    for _ in range(3):
        with pytest.raises(RankFailed) as caught:
            run_ranks(Call(faults.one_fails, ("raise",)), 2, 30, quiet=True)
        kept.append(caught.value)
    assert as_before(before)


def test_a_rank_that_cannot_be_started_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = belongings()
    start, calls = fork_server.start, []

    def fail_the_second(process):
        calls.append(process)
        if len(calls) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        start(process)

    monkeypatch.setattr(fork_server, "start", fail_the_second)
    with pytest.raises(Exception, match=r"Rank 1 could not be started: .*temporarily unavail"):
        run_ranks(Call(launching.all_reduce), 4, 30, quiet=True)
    monkeypatch.setattr(fork_server, "start", start)
    assert as_before(before)


@pytest.mark.memory
def test_the_descriptors_of_the_check_are_enough(monkeypatch):
    """As many ranks as the check lets pass do run under that limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = len(descriptors()) + 150
    ranks = preconditions.most_ranks(limit)
    assert ranks >= 10
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        assert run_ranks(Call(launching.all_reduce), min(ranks, 20), 60, quiet=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_file_of_the_repository_is_written():
    """Also no compiled file next to a worker, which could hide an edit."""
    folder = Path(launching.__file__).parent / "__pycache__"
    run_ranks(Call(launching.all_reduce), 2, 30, quiet=True)
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*")}
    run_ranks(Call(launching.all_reduce), 2, 30, quiet=True)
    assert {file: file.stat().st_mtime_ns for file in folder.glob("*")} == before
