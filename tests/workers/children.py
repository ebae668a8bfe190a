"""Workers that start processes of their own."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.workers.faults import fail

DAEMON = """
import os, pathlib, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
        time.sleep(600)
"""


def start(kind: str, folder: str, how: str = "return") -> int:
    """Start a process that never ends, write its pid, then end in the way called `how`."""
    rank = int(os.environ["RANK"])
    note = Path(folder, f"pid{rank}")
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    if kind == "plain":
        note.write_text(str(subprocess.Popen(sleep).pid))
    elif kind == "session":
        note.write_text(str(subprocess.Popen(sleep, start_new_session=True).pid))
    elif kind == "daemon":
        subprocess.run([sys.executable, "-c", DAEMON, str(note)])
    elif (pid := os.fork()) == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
    else:
        note.write_text(str(pid))
    while len([f for f in Path(folder).glob("pid*") if f.read_text()]) < 2:
        time.sleep(0.01)
    if how == "hang":
        time.sleep(60)
    fail(how)
    return rank


def dies_beside_a_fork():
    """The child inherits the pipes, so that their end does not show the rank's."""
    if os.fork() == 0:
        time.sleep(600)
    if os.environ["RANK"] == "1":
        os._exit(5)
    time.sleep(60)


def closes_its_files():
    os.closerange(3, 100)
    time.sleep(60)
