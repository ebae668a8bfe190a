"""The table of training runs: many writers, half lines, and files that it must not touch."""

import io
import multiprocessing
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest

from ddp_workbook.chapters.results import (
    COLUMNS,
    HEADER,
    ResultsError,
    append_row,
    check_results,
    line_of,
    read_results,
)
from manyranks.errors import WorkbookError

ROW = {
    "time": "2026-11-22T03:29:59+00:00",
    "program": "samplers",
    "job": "0012",
    "hosts": "a-1 b-2",
    "nodes": 2,
    "ranks": 4,
    "device": "cpu",
    "epochs": 3,
    "batch_size": 64,
    "width": 64,
    "depth": 1,
    "steps": 87,
    "loss": "0.281436",
    "accuracy": "0.940456",
    "step_ms": "2",
    "samples_per_second": "32000",
    "seconds": "1.5",
    "torch": "2.13.0+cpu",
}


def test_a_row_comes_back_as_it_was_given(tmp_path):
    """Numbers as numbers, names as text: the job 0012 is not 12."""
    path = tmp_path / "results.csv"
    append_row(path, ROW)
    append_row(path, ROW | {"job": "", "step_ms": "nan", "samples_per_second": "nan"})
    assert path.read_bytes().count(HEADER) == 1
    table = read_results(path)
    assert list(table.columns) == COLUMNS
    first, second = table.to_dict("records")
    assert first.pop("time") == pd.Timestamp(ROW["time"])
    assert first == {
        name: float(value) if isinstance(first[name], float) else value
        for name, value in ROW.items()
        if name != "time"
    }
    assert second["job"] == ""
    assert table["step_ms"].isna().tolist() == [False, True]


def test_a_table_without_rows_is_read_as_one(tmp_path):
    """With the types that rows would have."""
    path = tmp_path / "results.csv"
    for text in (b"", HEADER):
        path.write_bytes(text)
        table = read_results(path)
        assert len(table) == 0 and list(table.columns) == COLUMNS
        assert table["ranks"].dtype == int and table["step_ms"].dtype == float


@pytest.mark.parametrize("wrong", [{}, {"rank": 1, **ROW}, {**ROW, "width": 1} | {"": 1}])
def test_a_row_has_all_columns_and_no_other(tmp_path, wrong):
    with pytest.raises(ValueError, match="a row has the columns"):
        append_row(tmp_path / "results.csv", wrong)
    assert not list(tmp_path.iterdir())


# Many writers


def write_rows(path: str, writer: int, rows: int) -> None:
    """A job that appends as fast as it can."""
    for number in range(rows):
        append_row(path, ROW | {"job": f"{writer}-{number}"})


def test_jobs_that_append_at_once_lose_no_row_and_tear_none(tmp_path):
    path = str(tmp_path / "results.csv")
    fork = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    jobs = [fork.Process(target=write_rows, args=(path, job, 50)) for job in range(24)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * 24
    assert Path(path).read_bytes().count(HEADER) == 1
    table = read_results(path)
    assert sorted(table["job"]) == sorted(f"{job}-{row}" for job in range(24) for row in range(50))
    assert (table.drop(columns=["time", "job"]).nunique() == 1).all()  # nothing torn


# Killed writers, full disks


@pytest.mark.parametrize("bytes_left", [0, 1, 40, len(HEADER) - 1])
def test_a_header_that_was_cut_off_is_completed(tmp_path, bytes_left):
    path = tmp_path / "results.csv"
    path.write_bytes(HEADER[:bytes_left])
    check_results(path)
    append_row(path, ROW)
    assert path.read_bytes() == HEADER + line_of(ROW).encode()


@pytest.mark.parametrize("bytes_left", [1, 30, 60])
def test_half_a_row_swallows_no_other(tmp_path, bytes_left):
    """It stays in the file, and anyone who reads the table is warned."""
    path = tmp_path / "results.csv"
    append_row(path, ROW)
    half = line_of(ROW | {"hosts": '"'}).encode()[:bytes_left]  # a quote hides line ends from csv
    path.write_bytes(path.read_bytes() + half)
    append_row(path, ROW | {"job": "next"})
    assert half in path.read_bytes()
    with pytest.warns(UserWarning, match=r"results.csv, line 3: \d+ of 18 values; left out"):
        table = read_results(path)
    assert table["job"].tolist() == ["0012", "next"]


def test_a_last_line_without_its_end_is_still_a_row(tmp_path):
    """Some editors save a file so."""
    path = tmp_path / "results.csv"
    path.write_bytes(HEADER + line_of(ROW).rstrip().encode())
    append_row(path, ROW)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_results(path)) == 2


def test_on_a_full_disk_nothing_of_the_row_stays(tmp_path, monkeypatch):
    path = tmp_path / "results.csv"
    append_row(path, ROW)
    before = path.read_bytes()

    class FullDisk(io.FileIO):
        def write(self, data):
            return super().write(data[:20])

    monkeypatch.setattr(Path, "open", lambda self, *_, **__: FullDisk(self, "a+"))
    with pytest.raises(ResultsError, match=r"results.csv cannot be used: No space left"):
        append_row(path, ROW)
    monkeypatch.undo()
    assert path.read_bytes() == before


# Files that are something else

OLDER = b"time,program,ranks,seconds\n2025-01-01,samplers,4,1.5\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OLDER, "another version of the workbook wrote it"),
        (HEADER.replace(b"loss", b"cost"), "another version of the workbook wrote it"),
        (HEADER.replace(b",torch", b",torch,more"), "another version of the workbook wrote it"),
        (b"\n", "is not a table of results"),
        (b"my thesis", "is not a table of results"),
        (b"\x89PNG\r\n\x1a\n", "is not a table of results"),
    ],
)
def test_another_file_is_refused_and_stays_as_it_is(tmp_path, text, words):
    path = tmp_path / "results.csv"
    path.write_bytes(text)
    for refuse in (check_results, read_results, lambda path: append_row(path, ROW)):
        with pytest.raises(ResultsError, match=words) as error:
            refuse(path)
        assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)
        assert isinstance(error.value, WorkbookError)
    assert path.read_bytes() == text


@pytest.mark.parametrize(
    ("place", "words"),
    [("", "is a folder; give a file in it"), ("none/results.csv", "there is no folder .*none")],
)
def test_a_place_where_no_file_can_be_is_refused(tmp_path, place, words):
    with pytest.raises(ResultsError, match=words):
        check_results(tmp_path / place)
    with pytest.raises(ResultsError):
        append_row(tmp_path / place, ROW)
    assert not list(tmp_path.iterdir())


def test_a_check_makes_no_file(tmp_path):
    check_results(tmp_path / "results.csv")
    assert not list(tmp_path.iterdir())


# root may write everywhere, except a process that has dropped that right
AS_A_USER = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]


@pytest.mark.parametrize("there", [True, False], ids=["file", "folder"])
def test_what_is_read_only_is_refused_before_the_training(tmp_path, there):
    path = tmp_path / "results.csv"
    if there:
        append_row(path, ROW)
    (path if there else tmp_path).chmod(0o444 if there else 0o555)
    before = AS_A_USER if shutil.which("setpriv") and os.geteuid() == 0 else []
    code = "import sys; from ddp_workbook.chapters.results import *; check_results(sys.argv[1])"
    command = [*before, sys.executable, "-c", code, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100)
    tmp_path.chmod(0o755)
    assert result.stderr.splitlines()[-1].endswith("results.csv cannot be used: Permission denied.")


def test_a_table_that_is_not_there_or_holds_no_numbers_is_refused(tmp_path):
    path = tmp_path / "results.csv"
    with pytest.raises(ResultsError, match="cannot be used: No such file"):
        read_results(path)
    for column in ("time", "ranks", "step_ms"):
        path.write_bytes(HEADER + line_of(ROW | {column: "many"}).encode())
        with pytest.raises(ResultsError, match=r"results.csv has a value .*many"):
            read_results(path)
