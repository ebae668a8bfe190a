"""What must not be left behind: processes, descriptors, threads, folders."""

import contextlib
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from benchmarks.traces import alive, wait_until
from manyranks import files
from manyranks.launcher import fork_server, subreaper


@pytest.fixture(autouse=True)
def no_rank_left():
    """No process of any rank is left at the end of a test; on a busy machine, soon after it."""
    yield
    server = fork_server.server_pid()
    orphans = lambda: [] if server is None else alive(subreaper.children(server))  # noqa: E731
    assert wait_until(lambda: not orphans()), [psutil.Process(pid) for pid in orphans()]


@pytest.fixture
def no_temporary_folder_yet(tmp_path_factory, monkeypatch):
    """As in a new process: the workbook's temporary folder, called `instead…`, is made when asked.

    Its path, if there is any by now, is `files.temporary_folders()`.
    """
    own = SimpleNamespace(mkdtemp=lambda prefix: str(tmp_path_factory.mktemp("instead")))
    monkeypatch.setattr(files, "tempfile", own)
    files.temporary_folder.cache_clear()
    yield
    files.temporary_folder.cache_clear()


def pids_in(folder: Path) -> list[int]:
    """What the workers wrote about themselves, a pid a file."""
    texts = [file.read_text() for file in folder.iterdir() if file.name.startswith("pid")]
    return [int(text) for text in texts if text]


def descriptors() -> dict[str, str]:
    """Open files of this process."""
    links = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links[name] = os.readlink(f"/proc/self/fd/{name}")
    return links


def threads() -> int:
    """Threads of this process, native ones included."""
    return max(len(os.listdir("/proc/self/task")), threading.active_count())
