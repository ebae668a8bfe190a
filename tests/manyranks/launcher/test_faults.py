"""A launch in which a rank fails: the first to fail is named, soon, and with its own line."""

import os
import re
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from manyranks.diagnostics import advice, user_code
from manyranks.diagnostics.evidence import State
from manyranks.diagnostics.handled_errors import HandledError
from manyranks.diagnostics.positions import Position
from manyranks.errors import LaunchRefused, RankFailed, WorkbookError
from manyranks.launcher import launch as launch_module
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks
from tests.leaks import no_rank_left, pids_in  # noqa: F401
from tests.workers import children, faults, missing, results

# How rank 1 fails, what the first line says, which line of faults.py is named.
DEATHS = {
    "raise": ("failed: ValueError: no such digit", 'raise ValueError("no such digit")'),
    "exit": ("exited with exit code 3 without returning.", ""),
    "sys.exit": ("failed: SystemExit: 4", "sys.exit(4)"),
    "kill": ("was ended by SIGKILL.", ""),
    "segfault": ("was ended by SIGSEGV.", "ctypes.string_at(0)"),
    "abort": ("was ended by SIGABRT.", "os.abort()"),
    "unpicklable": ("failed: Unpicklable: ('holds a lock'", 'raise Unpicklable("holds a lock")'),
    "speechless": ("failed: Speechless: <its text cannot be shown", "raise Speechless"),
    "memory": ("failed: MemoryError", "raise MemoryError"),
    "terminate": ("was ended by SIGTERM.", ""),
}


def failure(worker, *args, ranks=2, timeout=30) -> RankFailed:
    with pytest.raises(RankFailed) as caught:
        run_ranks(Call(worker, args), ranks, timeout, quiet=True)
    return caught.value


@pytest.mark.parametrize("how", DEATHS)
def test_each_death_is_told_with_its_line(how):
    says, line = DEATHS[how]
    error = failure(faults.one_fails, how)
    assert str(error).startswith(f"Rank 1 (of 2) {says}")
    assert error.rank == 1 and line in str(error)
    assert "launcher/" not in str(error) and "Connection closed" not in str(error)


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_first_to_fail_is_the_one_reported(ranks):
    """Each kind of death, by each rank in turn: the others lost a peer, no more."""
    for bad in range(ranks):
        for how in ("raise", "exit", "kill", "abort"):
            error = failure(faults.one_fails, how, bad, ranks=ranks)
            assert error.rank == bad, (how, str(error))


def test_the_others_are_ended_at_once():
    """They sleep for a minute."""
    start = time.monotonic()
    error = failure(faults.others_sleep, 0.3, ranks=3)
    assert error.rank == 2 and time.monotonic() - start < 15  # seen: 0.5


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_failure_before_the_group_is_made(how):
    assert failure(faults.fails_before_the_group, how).rank == 1


def test_an_error_on_all_ranks_is_told_once():
    text = str(failure(faults.all_fail, ranks=4))
    assert text.count("ValueError: the same everywhere") == 2  # title and traceback
    assert re.search(r"the same on [123] other ranks?", text)  # those that were seen to fail


def test_who_returned_while_others_waited_and_what_it_never_entered():
    error = failure(faults.returns_early)
    text = str(error)
    first = "Rank 0 (of 2) waited for a rank that had left: rank 1 had already returned."
    assert text.splitlines()[0] == first
    lines = Path(faults.__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "# rank 1 is not here" in text)
    assert f"all_reduce of float [4] (tests/workers/faults.py:{line}): entered by rank 0" in text
    assert "never by rank 1" in text
    assert "Connection closed by peer" in text and "GLHF" not in text  # gloo's own good wishes


def test_a_reduce_scatter_has_its_own_name():
    """gloo makes an all_reduce of it, and records that one."""
    text = str(failure(faults.scatters_alone))
    assert "reduce_scatter of float [2] (tests/workers/faults.py" in text
    assert "all_reduce" not in text


def test_who_left_the_group_but_goes_on():
    text = str(failure(faults.destroys_early))
    assert text.startswith("Rank 0 (of 2) lost the connection to another rank.")
    assert re.search(r"rank 1 +is at +tests/workers/faults.py:\d+ +time.sleep\(60\)", text)


def test_a_timeout_of_pytorchs_own_says_who_did_not_come():
    text = str(failure(faults.times_out_by_itself))
    assert text.startswith("Rank 0 (of 2) failed: RuntimeError: Timed out waiting 700ms")
    assert re.search(r"rank 1 +is at .*time.sleep\(60\)", text)
    assert "entered by rank 0, never by rank 1" in text


@pytest.mark.parametrize("how", ["recv", "send", "irecv", "work", "destroyed", "times out"])
def test_a_send_or_recv_without_its_peer_is_no_collective(how):
    text = str(failure(faults.transfers, how))
    assert f"look at   {advice.PAIRS}" in text and "collective" not in text


@pytest.mark.parametrize("how", ["except", "exit"])
def test_what_is_handled_says_nothing_about_a_rank_that_has_returned(how):
    text = str(failure(faults.waits_after_what_both_had, how))
    assert ("SystemExit: 0\n" if how == "exit" else "StopIteration\n") in text
    assert "look at   A collective needs every rank of its group" in text


def test_who_waited_while_it_handled_an_error():
    """Whichever of the two ranks is seen to fail, its own or the other's error tells why."""
    text = str(failure(faults.waits_in_clean_up))
    assert "ValueError: rank 1 is broken\n" in text
    assert advice.WHILE_HANDLING.format(who="Rank 1") in text.split("look at   ")[1]


HANDLES = HandledError("ValueError: rank 1 is broken", "train.py", 3)


@pytest.mark.parametrize(
    ("states", "known"),
    [
        ({State.FAILED: None, State.WAITING: HANDLES}, True),  # rank 1 was seen to fail first
        ({State.WAITING: None, State.FAILED: HANDLES}, True),  # rank 0 was
        ({State.RETURNED: None, State.WAITING: HANDLES}, False),  # rank 0 may have had it, too
    ],
)
def test_whoever_is_seen_first_the_rank_that_handles_an_error_is_named(states, known):
    places = [
        Position(rank, state, "train.py", 5, "barrier", handled_error=error)
        for rank, (state, error) in enumerate(states.items())
    ]
    assert advice.for_handled(places).startswith("Rank 1 waited") is known


def test_a_shape_mismatch_that_aborts_names_the_line_and_the_cause():
    """The abort is in gloo's own thread, so nobody knows that this line made it."""
    error = failure(faults.shapes_differ)
    assert error.returncode == -6
    place = r"the worker stood at tests/workers/faults\.py:\d+  dist\.all_reduce\(x\)\n"
    assert re.search(place, str(error)) and "different shape or dtype" in str(error)


def test_a_crash_in_a_thread_of_the_workers_names_the_threads_line(monkeypatch):
    monkeypatch.setattr(
        launch_module, "FAILURE_SETTLE_S", 10
    )  # until all three have crashed; seen: 0.1
    monkeypatch.setattr(launch_module, "ROOT_CAUSE_SETTLE_S", 10)
    text = str(failure(faults.crashes_in_a_thread, ranks=3))
    line = r"threading\.Thread\(target=lambda: ctypes\.string_at\(0\)\)\.start\(\)"
    assert re.search(rf"\n  at        tests/workers/faults\.py:\d+  {line}\n", text)
    assert "time.sleep(60)" not in text and "stood at" not in text
    assert "the same on 2 other ranks\n" in text


def test_causes_are_shown_without_the_machinery():
    text = str(failure(faults.deep, ranks=1))
    assert (
        "RuntimeError" in text and "was the direct cause" in text and "KeyError: 'weights'" in text
    )
    frames = re.findall(r'File "(.*?)"', text)
    assert frames and {os.path.abspath(file) for file in frames} == {faults.__file__}


LIBRARY = """
import asyncio, json

def request():
    try:
        json.loads("{")
    except ValueError as error:
        raise RuntimeError("no answer") from error

def fetch(depth=5):
    return fetch(depth - 1) if depth else request()

def fetch_both():
    async def one():
        fetch()
    async def both():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one())
    asyncio.run(both())
"""


def test_a_librarys_frames_are_one_line_behind_the_readers(tmp_path, monkeypatch):
    """Also inside an exception group."""
    folder = tmp_path / "site-packages" / "deep_library"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder.parent)
    alone, both = (
        str(failure(faults.fails_in_a_library, called, ranks=1))
        for called in ("fetch", "fetch_both")
    )
    own = "\n      getattr(deep_library, called)()\n    … 7 frames in deep_library, raised in "
    assert own + "__init__.py:8 (request)\n  RuntimeError: no answer" in alone
    chained = r"\n    … 4 frames in deep_library and json, raised in decoder\.py:\d+ \(raw_decode\)"
    assert re.search(rf"Traceback .*{chained}\n  json\.decoder\.JSONDecodeError: Expecting", alone)
    assert re.search(r"\|   … \d frames in deep_library and asyncio, raised in taskgroups", both)
    assert "|   … 8 frames in deep_library, raised in __init__.py:8 (request)\n" in both
    for text in (alone, both):
        assert re.findall(r'File "(.*?)"', text) == ["tests/workers/faults.py"]


# A file -> whether it is a library's, for a kernel in project/notebooks of a project with a .git.
FOLDERS = {
    "project/train.py": False,
    "project/notebooks/cell.py": False,
    "project/src/package/model.py": False,  # also with PYTHONPATH=src
    "project/.venv/lib/python3.11/site-packages/urllib3/util.py": True,
    "project/deps/urllib3/util.py": True,  # by `pip install --target deps`
    "elsewhere/editable/src/package/model.py": False,  # by `pip install --editable`
    "home/.local/lib/python3.11/site-packages/urllib3/util.py": True,
    "cluster/modules/dist-packages/urllib3/util.py": True,
    "cluster/tools/urllib3/util.py": True,  # on PYTHONPATH
    "other/project/worker.py": False,  # launched from there, and on PYTHONPATH
    "other/project/package/model.py": False,
}


@pytest.mark.parametrize("file", FOLDERS)
def test_whose_a_file_is(file, tmp_path, monkeypatch):
    named = [tmp_path / one for one in ("project/src", "cluster/tools", "other/project")]
    on_path = [*named, tmp_path / "project/deps", tmp_path / "elsewhere/editable/src"]
    for folder in (*on_path, tmp_path / "project/notebooks", tmp_path / "project/.git"):
        folder.mkdir(parents=True)
    (tmp_path / "project/deps/urllib3-2.0.dist-info").mkdir()
    monkeypatch.chdir(tmp_path / "project/notebooks")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, named)))
    monkeypatch.setattr(sys, "path", [*map(str, on_path), *sys.path])
    monkeypatch.setattr(user_code, "WORKER_FOLDERS", set())
    user_code.add_worker(str(tmp_path / "other/project/worker.py"))
    assert user_code.is_library(str(tmp_path / file)) is FOLDERS[file]


def test_whose_a_file_is_if_the_current_folder_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    (tmp_path / "gone").rmdir()
    assert not user_code.is_library("train.py") and not user_code.is_library("/x/train.py")


@pytest.mark.parametrize("worker", [faults.recursion, faults.long_message, faults.group])
def test_the_page_stays_short(worker):
    text = str(failure(worker, ranks=1))
    assert len(text) < 8000 and len(text.splitlines()) < 30


@pytest.mark.parametrize(
    ("worker", "advice"),
    [
        (faults.reads_the_keyboard, "has no keyboard"),
        (faults.breaks_into_the_debugger, "has no keyboard"),
        (missing.runs_out_of_memory, "All ranks share this machine's memory"),
        (missing.allocates_too_much, "All ranks share this machine's memory"),
        (missing.gathers_a_lambda, "A lambda, a function inside another one"),
        (missing.gathers_a_generator, "a generator, a lock or an open file"),
        (missing.gathers_a_lock, "a generator, a lock or an open file"),
        (missing.exits, "os._exit does that"),
        (faults.no_group, "Call dist.init_process_group"),
        (faults.misses_a_name, "import torch, and ask dist.get_rank()"),
        (faults.reads_a_wrapped_model, "ddp_model.module"),
        (faults.loads_a_wrapped_state, "ddp_model.module.state_dict()"),
        (faults.opens_a_missing_file, "start at the folder"),
        (faults.unused_parameters, "find_unused_parameters=True"),
        (faults.not_a_member, "only use a group that it belongs to"),
    ],
)
def test_errors_that_learners_meet_come_with_advice(worker, advice):
    assert advice in str(failure(worker)).split("look at")[-1]


def test_two_calls_that_meet_are_told_from_two_shapes_of_one():
    """An uneven number of batches: gloo aborts the rank to which the wrong size comes."""
    for _ in range(3):  # the rank that lives may have no time to say where it stands
        error = failure(faults.one_step_more)
        text = " ".join(str(error).split())
        assert error.returncode == -6 and "two different calls met" in text
        assert "dist.all_reduce(total)" in text
        if advice.TWO_CALLS in text:
            break
    assert "loss.backward()" in text and "different shape or dtype" not in text


@pytest.mark.parametrize(
    ("worker", "meant"),
    [(faults.misspells_a_name, "model"), (faults.misspells_an_attribute, "numel")],
)
def test_pythons_own_suggestion_stays(worker, meant):
    """A file's typo has nothing to do with the cells of a notebook."""
    text = str(failure(worker))
    assert f"Did you mean: '{meant}'?" in text and "cells" not in text


def test_a_subprocess_of_a_rank_has_no_keyboard_either():
    assert run_ranks(Call(faults.asks_a_subprocess), 1, 10, quiet=True) == [b""]


def test_a_result_that_cannot_travel_names_the_rank_and_the_reason():
    error = failure(results.one_generator)
    assert str(error).startswith("Rank 1 (of 2): its result cannot be sent back. <generator object")
    assert "cannot pickle 'generator' object" in str(error) and "Traceback" not in str(error)
    assert "a lambda" in str(failure(results.a_lambda, ranks=1)).lower()
    assert "nested too deeply" in str(failure(results.deep, ranks=1))


def test_a_result_that_only_the_rank_can_read_is_told():
    with pytest.raises(WorkbookError, match="result of rank 0 cannot be read here"):
        run_ranks(Call(results.unreadable), 1, 10, quiet=True)


@pytest.mark.parametrize(
    ("how", "kinds"),
    [
        ("return", ["plain", "session", "daemon", "fork"]),
        *((how, ["session", "fork"]) for how in ("raise", "kill", "hang")),
    ],
)
def test_processes_that_a_rank_started_end_with_it(how, kinds, tmp_path):
    for kind in kinds:
        (folder := tmp_path / kind).mkdir()
        with nullcontext() if how == "return" else pytest.raises(RankFailed):
            run_ranks(
                Call(children.start, (kind, str(folder), how)),
                2,
                2 if how == "hang" else 30,
                quiet=True,
            )
        pids = pids_in(folder)
        assert len(pids) == 2 and not any(map(psutil.pid_exists, pids))


def test_a_process_of_the_readers_own_is_left_alone():
    """Also one from the same fork server that the ranks come from."""
    import multiprocessing

    other = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(60,))
    other.start()
    try:
        failure(faults.one_fails, "exit")
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


def test_a_child_that_holds_the_pipes_does_not_hide_a_death():
    start = time.monotonic()
    error = failure(children.dies_beside_a_fork)
    assert error.returncode == 5 and time.monotonic() - start < 20  # else 30, the time limit


def test_a_rank_that_closes_all_its_files_is_stopped_all_the_same():
    assert "does not answer" in str(failure(children.closes_its_files, timeout=2))


def test_what_was_printed_before_a_failure_is_shown(capsys):
    failure(faults.prints_then_fails)
    assert "[rank 1] the last words\n" in capsys.readouterr().out


def test_errors_can_be_caught_by_the_names_that_python_has():
    assert issubclass(RankFailed, RuntimeError) and issubclass(LaunchRefused, ValueError)
    error = failure(faults.all_fail, ranks=1)
    assert error.explain() == str(error) and error._render_traceback_()[0].startswith("RankFailed:")
