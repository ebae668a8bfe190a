"""Keeps a second run out of the folder to which one saves."""

import os
import socket
import time
from pathlib import Path
from typing import IO

TIMEOUT_S = 10  # seconds that a run waits for another to leave the folder


def lock(folder: Path) -> IO[bytes]:
    """Keep other runs out while this process lives; BlockingIOError, with its name, if one is in.

    The system unlocks the folder when the process ends, after a SIGKILL too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / "lock").open("a+b", buffering=0)
    remaining_s = TIMEOUT_S
    while locked_by_another(file):
        if not remaining_s:
            file.seek(0)
            raise BlockingIOError(file.read().decode())
        time.sleep(1)  # it may just be ending
        remaining_s -= 1
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
    return file


def locked_by_another(file: IO[bytes]) -> bool:
    """If not, this process has locked it now: its children have no part in that."""
    try:
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):  # Windows, or a disk that knows no locks
        pass
    return False
