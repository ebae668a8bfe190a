"""A table of training runs, one row each, that many jobs may append to at the same time."""

import contextlib
import csv
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

WORDS = ["program", "job", "hosts", "device", "torch"]
COUNTS = ["nodes", "ranks", "epochs", "batch_size", "width", "depth", "steps"]
MEASURES = ["loss", "accuracy", "step_ms", "samples_per_second", "seconds"]
COLUMNS = [
    *("time", "program", "job", "hosts", "nodes", "ranks", "device"),
    *("epochs", "batch_size", "width", "depth", "steps", "loss", "accuracy"),
    *("step_ms", "samples_per_second", "seconds", "torch"),
]
HEADER = ",".join(COLUMNS) + "\n"


class ResultsRefused(WorkbookError, ValueError):
    """A file of results that cannot be used: one sentence that names it and says what to do."""


def append_row(path: str | Path, row: Mapping[str, Any]) -> None:
    """Append `row`, a value for each of COLUMNS, to the table at `path`; begin it if there is none.

    Other processes may do the same at the same time, on other hosts of a shared folder too. What
    stands in the file is never changed. Raises ResultsRefused for a file that is not such a table,
    or that cannot be written; then it is as it was.
    """
    if row.keys() != set(COLUMNS):
        raise ValueError(f"a row has the columns {COLUMNS}, not {list(row)}")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row[column] for column in COLUMNS)
    path = Path(path).expanduser()
    with in_words(path), path.open("a+b", buffering=0) as file, locked(file):
        file.seek(0)
        start = opening(path, file.read(len(HEADER.encode())))
        write_at_once(file, (start or end_of_line(file)) + text.getvalue().encode())


def check_results(path: str | Path) -> None:
    """Raise ResultsRefused if `append_row` would; touch nothing."""
    path = Path(path).expanduser()
    if not path.parent.is_dir():
        raise ResultsRefused(f"{path}: there is no folder {path.parent}; make it first.")
    with in_words(path):
        if path.exists():
            with path.open("r+b", buffering=0) as file:
                opening(path, file.read(len(HEADER.encode())))
        elif not os.access(path.parent, os.W_OK):
            raise PermissionError(13, "Permission denied")


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
        text = path.read_text(encoding="utf-8")
    opening(path, text.encode())
    whole = []
    for number, values in enumerate(csv.reader(io.StringIO(text)), start=1):
        if len(values) == len(COLUMNS):
            whole.append(values)
        elif values:
            words = f"{path}, line {number}: {len(values)} of {len(COLUMNS)} values; left out."
            warnings.warn(words, stacklevel=2)
    table = pd.DataFrame(whole[1:], columns=COLUMNS)
    try:
        table["time"] = pd.to_datetime(table["time"], utc=True)
        table[COUNTS] = table[COUNTS].astype(int)
        table[MEASURES] = table[MEASURES].astype(float)
    except ValueError as error:
        raise ResultsRefused(f"{path} has a value that is no number: {error}.") from None
    return table


def opening(path: Path, text: bytes) -> bytes:
    """What a file that begins with `text` lacks of the header; ResultsRefused if it has another."""
    header = HEADER.encode()
    if text.startswith(header):
        return b""
    if header.startswith(text):  # new, or its first writer was killed in the middle of the header
        return header[len(text) :]
    raise ResultsRefused(
        f"{path} is not a table of results, or one that another version of the workbook wrote: its "
        "first line is not the header written now. Give another file; this one was not changed."
    )


def end_of_line(file: io.FileIO) -> bytes:
    """A newline where the last line has none, else its half row and the next would be one."""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def write_at_once(file: io.FileIO, data: bytes) -> None:
    """Append all of `data` or, where the disk is full, nothing."""
    before = os.fstat(file.fileno()).st_size
    try:
        written = file.write(data)
        if written < len(data):
            raise OSError(28, "No space left on device")
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
        raise ResultsRefused(f"{path} is not a table of results: it is no text.") from None
    except IsADirectoryError:
        raise ResultsRefused(f"{path} is a folder; give a file in it.") from None
    except OSError as error:
        raise ResultsRefused(f"{path} cannot be used: {error.strerror}.") from None
