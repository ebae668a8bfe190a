"""A table of training runs, one row each, to which many jobs may append at the same time."""

import contextlib
import csv
import errno
import io
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from manyranks.errors import WorkbookError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows has no such locks; a row is still one write
    fcntl = None

COUNTS = ["nodes", "ranks", "epochs", "batch_size", "width", "depth", "steps"]
MEASURES = ["loss", "accuracy", "step_ms", "samples_per_second", "seconds"]
COLUMNS = [
    *("time", "program", "job", "hosts", "nodes", "ranks", "device"),
    *("epochs", "batch_size", "width", "depth", "steps", "loss", "accuracy"),
    *("step_ms", "samples_per_second", "seconds", "torch"),
]
HEADER = (",".join(COLUMNS) + "\n").encode()


class ResultsError(WorkbookError, ValueError):
    """A file of results that cannot be used; the message names it and says what to do."""


def append_row(path: str | Path, row: Mapping[str, Any]) -> None:
    """Append `row`, a value for each of COLUMNS, to the table at `path`; start it if there is none.

    Other processes may do the same at the same time, even on other hosts that share the folder.
    Existing lines are never changed. Raises ResultsError for a file that is not such a table, or
    that cannot be written; the file is then unchanged.
    """
    line = line_of(row)
    path = Path(path).expanduser()
    with explained_errors(path), path.open("a+b", buffering=0) as file, exclusive_lock(file):
        file.seek(0)
        start = rest_of_header(path, file.read(len(HEADER)))
        if not start:
            file.seek(-1, os.SEEK_END)  # a row must not join the line of a writer that was killed
            start = b"" if file.read(1) == b"\n" else b"\n"
        write_at_once(file, start + line.encode())


def line_of(row: Mapping[str, Any]) -> str:
    """The row as a line of the table."""
    if row.keys() != set(COLUMNS):
        raise ValueError(f"a row has the columns {COLUMNS}, not {list(row)}")
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(row[column] for column in COLUMNS)
    return line.getvalue()


def check_results(path: str | Path) -> None:
    """Raise ResultsError if `append_row` would; change nothing."""
    path = Path(path).expanduser()
    if not path.parent.is_dir():
        raise ResultsError(f"{path}: there is no folder {path.parent}; make it first.")
    with explained_errors(path):
        if path.exists():
            with path.open("r+b", buffering=0) as file:
                rest_of_header(path, file.read(len(HEADER)))
        elif not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def read_results(path: str | Path) -> pd.DataFrame:
    """The table at `path`: a row a run, oldest first, with the columns COLUMNS.

    `time` is UTC. `job` is "" outside a scheduler; `hosts` are names separated by spaces.
    `batch_size` is the global one, `step_ms` the median over the steps, and `samples_per_second`
    their quotient, nan for a run of a single step; `seconds` is the time of the whole training. An
    incomplete line, whose writer was killed, is left out with a warning. Raises ResultsError for
    a file that is missing or not such a table.
    """
    path = Path(path).expanduser()
    with explained_errors(path):
        data = path.read_bytes()
        rest_of_header(path, data)
        lines = data.decode().split("\n")
    whole = []
    for number, line in enumerate(lines[1:], start=2):
        values = next(csv.reader([line]), [])  # one by one: half a line cannot swallow the next
        if len(values) == len(COLUMNS):
            whole.append(values)
        elif values:
            words = f"{path}, line {number}: {len(values)} of {len(COLUMNS)} values; left out."
            warnings.warn(words, stacklevel=2)
    table = pd.DataFrame(whole, columns=COLUMNS)
    try:
        table["time"] = pd.to_datetime(table["time"], utc=True)
        table[COUNTS] = table[COUNTS].astype(int)
        table[MEASURES] = table[MEASURES].astype(float)
    except ValueError as error:
        raise ResultsError(f"{path} has a value that is not a number: {error}.") from None
    return table


def rest_of_header(path: Path, start: bytes) -> bytes:
    """The part of the header that this start of a file lacks; ResultsError if it differs."""
    if start.startswith(HEADER):
        return b""
    if HEADER.startswith(start):  # empty, or the first writer was killed within the header
        return HEADER[len(start) :]
    raise ResultsError(
        f"{path} is not a table of results, or another version of the workbook wrote it: its first "
        "line is not the current header. Nothing was changed; give another file."
    )


def write_at_once(file: io.FileIO, data: bytes) -> None:
    """Append all of `data`, or nothing if the disk is full."""
    before = os.fstat(file.fileno()).st_size
    try:
        written = file.write(data)
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        file.truncate(before)
        raise


@contextlib.contextmanager
def exclusive_lock(file: io.FileIO) -> Iterator[None]:
    """Keep other writers out; on Linux, also those on other hosts of an NFS folder."""
    if fcntl is not None:
        # Some parallel file systems have no locks; even there, a row is a single append.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
    yield  # closing the file unlocks it


@contextlib.contextmanager
def explained_errors(path: Path) -> Iterator[None]:
    """Turn the system's errors about the file into ResultsError."""
    try:
        yield
    except UnicodeDecodeError:
        raise ResultsError(f"{path} is not a table of results: it is not text.") from None
    except IsADirectoryError:
        raise ResultsError(f"{path} is a folder; give a file in it.") from None
    except OSError as error:
        raise ResultsError(f"{path} cannot be used: {error.strerror}.") from None
