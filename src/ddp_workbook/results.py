"""A table of training runs, one row each, that many jobs may append to at the same time."""

import contextlib
import csv
import errno
import io
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ddp_workbook.errors import WorkbookError

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


class ResultsRefused(WorkbookError, ValueError):
    """A file of results that cannot be used: one sentence that names it and says what to do."""


def append_row(path: str | Path, row: Mapping[str, Any]) -> None:
    """Append `row`, a value for each of COLUMNS, to the table at `path`; begin it if there is none.

    Other processes may do the same at the same time, on other hosts of a shared folder too. What
    stands in the file is never changed. Raises ResultsRefused for a file that is not such a table,
    or that cannot be written; then it is as it was.
    """
    line = line_of(row)
    path = Path(path).expanduser()
    with in_words(path), path.open("a+b", buffering=0) as file, locked(file):
        file.seek(0)
        start = rest_of_header(path, file.read(len(HEADER)))
        write_at_once(file, (start or end_of_line(file)) + line.encode())


def line_of(row: Mapping[str, Any]) -> str:
    """The row as a line of the table."""
    if row.keys() != set(COLUMNS):
        raise ValueError(f"a row has the columns {COLUMNS}, not {list(row)}")
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(row[column] for column in COLUMNS)
    return line.getvalue()


def check_results(path: str | Path) -> None:
    """Raise ResultsRefused if `append_row` would; touch nothing."""
    path = Path(path).expanduser()
    if not path.parent.is_dir():
        raise ResultsRefused(f"{path}: there is no folder {path.parent}; make it first.")
    with in_words(path):
        if path.exists():
            with path.open("r+b", buffering=0) as file:
                rest_of_header(path, file.read(len(HEADER)))
        elif not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def read_results(path: str | Path) -> pd.DataFrame:
    """The table at `path`: a row a run, oldest first, with the columns COLUMNS.

    `time` is UTC. `job` is "" outside a scheduler, `hosts` are names with a blank between.
    `batch_size` is that of all ranks together, `step_ms` the median over the steps and
    `samples_per_second` their quotient, nan where a run had a single step; `seconds` is the whole
    training's. A line that is not whole, because its writer was killed, is left out with a warning.
    Raises ResultsRefused for a file that is not there, or not such a table.
    """
    path = Path(path).expanduser()
    with in_words(path):
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
        raise ResultsRefused(f"{path} has a value that is no number: {error}.") from None
    return table


def rest_of_header(path: Path, start: bytes) -> bytes:
    """What a file with this start lacks of the header; ResultsRefused if its header is another."""
    if start.startswith(HEADER):
        return b""
    if HEADER.startswith(start):  # empty, or its first writer was killed within the header
        return HEADER[len(start) :]
    raise ResultsRefused(
        f"{path} is no table of results, or another version of the workbook wrote it: its first "
        "line is not the header that is written now. Nothing was changed; give another file."
    )


def end_of_line(file: io.FileIO) -> bytes:
    """A newline if the last line has none; else a row would join what a killed writer has left."""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def write_at_once(file: io.FileIO, data: bytes) -> None:
    """Append all of `data` or, where the disk is full, nothing."""
    before = os.fstat(file.fileno()).st_size
    try:
        written = file.write(data)
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        file.truncate(before)
        raise


@contextlib.contextmanager
def locked(file: io.FileIO) -> Iterator[None]:
    """Keep other writers out; on Linux, those on other hosts of an NFS folder too."""
    if fcntl is not None:
        # Some parallel file systems are mounted without locks: there a row is still one append.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
    yield  # closing the file unlocks it


@contextlib.contextmanager
def in_words(path: Path) -> Iterator[None]:
    """Turn what the system says of the file into a ResultsRefused."""
    try:
        yield
    except UnicodeDecodeError:
        raise ResultsRefused(f"{path} is no table of results: it is not text.") from None
    except IsADirectoryError:
        raise ResultsRefused(f"{path} is a folder; give a file in it.") from None
    except OSError as error:
        raise ResultsRefused(f"{path} cannot be used: {error.strerror}.") from None
