"""The environment of `make setup`: made, left alone, brought up to date, repaired."""

import os
import signal
import subprocess
import time

import pytest

from tests.newcomer import Newcomer
from tools import environment, set_up


@pytest.fixture(scope="module")
def ready(tmp_path_factory) -> Newcomer:
    """A newcomer whose `make setup` has just gone well, under variables that lead pip astray."""
    ready = Newcomer(tmp_path_factory.mktemp("ready"))
    ready.add_torch()
    hostile = {"PIP_USER": "1", "PIP_TARGET": "/nowhere", "PYTHONPATH": "/nowhere"}
    ready.first = ready.make("setup", **hostile)
    return ready


@pytest.fixture
def up_to_date(ready) -> Newcomer:
    """The same, whatever the test before has done to it."""
    ready.make("setup")
    return ready


def test_from_nothing_to_ready(ready):
    """One command, and torch and the package can be imported."""
    assert ready.first.returncode == 0, ready.first.stdout + ready.first.stderr
    assert "CPU build, because this machine shows no NVIDIA GPU" in ready.first.stdout
    assert ready.torch() == "2.13.0+cpu"


def test_the_second_call_starts_at_once(up_to_date):
    """Nothing has changed: not even pip is started."""
    log = up_to_date.log.read_text()
    started = time.monotonic()
    assert up_to_date.make("setup").returncode == 0
    assert time.monotonic() - started < 5  # 0.3 s seen
    assert up_to_date.log.read_text() == log


def test_new_pins_go_into_the_same_environment(up_to_date):
    """pip runs again; the environment itself is kept."""
    made = (up_to_date.folder / ".venv/pyvenv.cfg").stat().st_mtime_ns
    log = up_to_date.log.read_text()
    with open(up_to_date.folder / "constraints.txt", "a") as pins:
        pins.write("# changed\n")
    assert up_to_date.make("setup").returncode == 0
    assert up_to_date.log.read_text() != log
    assert (up_to_date.folder / ".venv/pyvenv.cfg").stat().st_mtime_ns == made


def test_the_development_packages_stay(up_to_date):
    """`make lab` after `make test` must not see another environment than `make test` made."""
    stamp = environment.json.loads(up_to_date.stamp.read_text())
    stamp["dev"] = True
    up_to_date.stamp.write_text(environment.json.dumps(stamp))
    log = up_to_date.log.read_text()
    assert up_to_date.make("setup").returncode == 0
    assert up_to_date.log.read_text() == log


def test_an_interrupted_set_up_is_repaired_by_the_next_call(tmp_path):
    """Killed while pip installs torch: the next call starts afresh and ends well.

    That call comes from the half-made environment's own Python, as if it had been activated: it
    must not saw off its own branch.
    """
    newcomer = Newcomer(tmp_path)
    newcomer.add_torch()
    running = subprocess.Popen(
        newcomer.call("setup"),
        cwd=newcomer.folder,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    unfinished = newcomer.folder / ".venv/unfinished"
    deadline = time.monotonic() + 60
    while not (unfinished.exists() and "torch" in unfinished.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert not newcomer.stamp.exists()
    again = newcomer.make("setup", PYTHON=str(newcomer.folder / ".venv/bin/python"))
    assert again.returncode == 0, again.stderr
    assert newcomer.torch() == "2.13.0+cpu"
    assert not unfinished.exists()


def test_a_python_that_is_gone_is_seen(monkeypatch, tmp_path):
    """An upgrade of the system took away the Python behind .venv: nothing in there runs."""
    python = tmp_path / "python"
    python.symlink_to("/nowhere/python")
    monkeypatch.setattr(environment, "PYTHON", python)
    assert environment.look_inside("cpu") == ("", False)


@pytest.mark.parametrize(
    ("changed", "rebuilt"),
    [
        ({}, False),
        ({"inputs": "other"}, False),
        ({"dev": True}, False),
        ({"root": "/moved"}, True),
        ({"torch": "cuda"}, True),
        ({"python": "3.12"}, True),
        ({"python": ""}, True),
        ({"torch": "site"}, True),
    ],
)
def test_what_makes_the_environment_anew(monkeypatch, tmp_path, changed, rebuilt):
    """A moved folder, another torch or another Python; new pins and packages are added to it."""
    monkeypatch.setattr(environment, "UNFINISHED", tmp_path / "unfinished")
    old = {"root": "/here", "python": "3.11", "torch": "cpu", "dev": False, "inputs": "some"}
    assert environment.must_rebuild(old, {**old, **changed}) is rebuilt


def test_unknown_commands_are_refused(capsys):
    """A misspelt command lists the ones that exist."""
    assert set_up.main(["labs"]) == 2
    assert "lab, test" in capsys.readouterr().err
