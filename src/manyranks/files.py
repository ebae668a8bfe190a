"""Writes files atomically, and provides a folder if the reader's is read-only."""

import atexit
import contextlib
import itertools
import os
import secrets
import shutil
import tempfile
from functools import cache
from pathlib import Path


def write_atomically(path: Path, text: str) -> Path:
    """Write `text` as UTF-8 and return `path`; folders above it are made.

    Two processes may write the same file at once. An existing file keeps its permissions. Raises
    OSError if it cannot be written, and leaves nothing half-written behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The pid alone is not enough: two containers may share a folder, and two threads a process.
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(path, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def write_numbered(folder: Path, stem: str, suffix: str, data: bytes) -> Path:
    """Write `data` to a new file, `stem.1suffix` or the next free number, and return it.

    Folders above it are made. Raises OSError, and leaves no part of a file behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = folder / f"{stem}.{number}{suffix}"
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        try:
            path.write_bytes(data)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return path
    raise AssertionError


@cache
def temporary_folder() -> Path:
    """A folder of this process, made at the first call and removed when the process ends.

    A killed process leaves it behind, so call this only to write into the folder.
    """
    folder = tempfile.mkdtemp(prefix="ddp-workbook-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def temporary_folders() -> list[Path]:
    """The temporary folder, if it was made, to look for earlier files; else an empty list."""
    return [temporary_folder()] if temporary_folder.cache_info().currsize else []
