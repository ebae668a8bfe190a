"""The benchmark: each row's lines, numbers that are plausible, and faults that it must see."""

import os
import subprocess
import sys
import threading

import pandas as pd
import pytest
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks import (
    after_faults,
    doctor_time,
    exercise_checks,
    kernel_faults,
    large_result,
    launch_speed,
    many_ranks,
    notebook_times,
    ordered_network,
    recorded_run,
    room,
    starters,
    step_overhead,
    table,
    traces,
)
from benchmarks.bare import BareForkServer
from benchmarks.rows import ROWS
from benchmarks.table import Line, Spread
from benchmarks.workers.steps import BAREST, READY
from ddp_workbook.experiments.data_parallel.step_times import Size
from ddp_workbook.experiments.distributed_data_parallel import step_times
from manyranks.recording.timing import compare
from tools import book

slow_row = pytest.mark.release("slow rows of the benchmark")
MISSED_TARGET = Line("a thing", "2 s", 2.0, target="at most 1 s", met=False, note="it was\nslow")


@pytest.fixture
def server():
    """A bare fork server that has started ranks once."""
    with BareForkServer() as bare:
        starters.by_bare_fork_server(bare, 2)
        yield bare


# The table


def frame(**seconds: list[float]) -> pd.DataFrame:
    """Timings of candidates, a round each."""
    rows = [
        (name, number, one) for name, all_of in seconds.items() for number, one in enumerate(all_of)
    ]
    return pd.DataFrame(rows, columns=["candidate", "round", "seconds"])


def test_ratios_are_taken_round_by_round():
    """A slow round is slow for both, and does not count as a difference."""
    timings = frame(fast=[1.0, 10.0, 2.0], slow=[3.0, 30.0, 6.0])
    assert table.times_as_fast(timings, "fast", "slow") == Spread(3.0, 3.0, 3.0, 3)
    assert table.beside(timings, "both", "slow", "fast", longer=True).ratio == 3.0


# The command


def call(monkeypatch, tmp_path, rows: dict, *arguments: str):
    """Run the command with other rows and another report."""
    monkeypatch.setattr(command, "ROWS", rows)
    monkeypatch.setattr(command, "REPORT", tmp_path / "benchmark.md")
    app = command.typer.Typer()
    app.command()(command.main)
    return CliRunner().invoke(app, list(arguments))


def test_a_row_that_cannot_be_measured_does_not_stop_the_others(monkeypatch, tmp_path):
    """Exit code 1, where a missed target is 0; the report keeps the notes, and no host name."""
    rows = {"good": lambda quick: [MISSED_TARGET]}
    assert call(monkeypatch, tmp_path, rows).exit_code == 0
    result = call(monkeypatch, tmp_path, {"bad": lambda quick: 1 / 0} | rows)
    assert result.exit_code == 1
    assert "ZeroDivisionError" in result.output
    report = (tmp_path / "benchmark.md").read_text()
    assert "| bad | could not be measured |  |  |  | missed |" in report
    assert "| a thing | 2 s |  |  | at most 1 s | missed |" in report
    assert "- a thing: it was slow\n" in report
    assert os.uname().nodename not in report


def test_some_rows_alone_and_quick_runs_write_no_report(monkeypatch, tmp_path):
    """Rows are chosen by name, and told whether to be quick."""
    asked = []
    rows = {name: lambda quick, name=name: asked.append((name, quick)) or [] for name in "abc"}
    assert call(monkeypatch, tmp_path, rows, "--only", "b").exit_code == 0
    assert call(monkeypatch, tmp_path, rows, "--quick", "--leave-out", "a").exit_code == 0
    assert asked == [("b", False), ("b", True), ("c", True)]
    assert not (tmp_path / "benchmark.md").exists()


def test_an_unknown_row_is_refused_with_the_names(monkeypatch, tmp_path):
    """Before anything is measured."""
    result = call(monkeypatch, tmp_path, ROWS, "--only", "speed")
    assert result.exit_code == 2
    assert "'speed'" in result.output
    assert all(name in result.output for name in ("launch", "64-ranks"))


# The rows


@pytest.mark.push("the benchmark")
@slow_row
def test_launch_is_faster_than_the_other_ways(server):
    """A line for each way, with a ratio well above 1 where a new Python has to start."""
    starters.by_launch(launch_speed.RANKS)
    timings = compare(launch_speed.candidates(server, 2), rounds=1, warm_up=0)
    lines = launch_speed.lines(timings, first=[1.0])
    ratios = {line.what.split()[-1]: line.ratio for line in lines if line.ratio}
    assert ratios["mp.spawn"] > 3
    assert ratios["torchrun"] > 3
    assert 0.1 < ratios["server"] < 10
    assert [line.met is None for line in lines] == [False, False, False, True, True]


def test_leaks_are_counted(monkeypatch, tmp_path):
    """Two more descriptors, a thread, a file and a process are leaks; torch's own cache is not."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(traces.MARK, "a-test")
    before = traces.traces()
    (tmp_path / "torchinductor_me" / "inside").mkdir(parents=True)
    (tmp_path / "left").touch()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    line = [sys.executable, "-c", "print(flush=True); input()"]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()  # it runs
    try:
        more = traces.leaks(before, patience=0.0)
    finally:
        process.communicate(b"\n")
        stop.set()
        thread.join()
    assert more == {"descriptors": 2, "threads": 1, "files": 1, "orphans": 1}


@pytest.mark.push("the benchmark")
@pytest.mark.parametrize("kind", ["SIGKILL", "early return", "stuck in gloo"])
def test_seconds_after_a_fault(kind):
    """From the fault, not from the start: a hang's time limit is not in it."""
    assert -0.1 < after_faults.seconds_after(kind) < 10


@slow_row
def test_faults_of_a_kernel():
    """Interrupt, restart, death: a plausible time for each."""
    took = kernel_faults.kernel_faults(interrupts=1)
    assert len(took) == 3
    assert all(0 < one < 20 for seconds in took.values() for one in seconds)


@pytest.mark.push("the benchmark")
def test_the_chapters_step_is_compared_in_the_same_ranks():
    """All three loops, a time a round; the toy step is far below a second."""
    timings = step_overhead.step_seconds(step_overhead.CHAPTER, rounds=3)
    assert timings["candidate"].value_counts().to_dict() == {"chapter": 3, BAREST: 3, READY: 3}
    assert timings["seconds"].between(1e-5, 1).all()
    assert 0.3 < table.times_as_fast(timings, BAREST, "chapter").median < 3


@pytest.mark.push("the benchmark")
@pytest.mark.parametrize(
    ("row", "size", "small", "what"),
    [
        (many_ranks, "RANKS", 8, "8 ranks"),
        (large_result, "SIZE", 10_000_000, "a result of 10 MB from one rank"),
    ],
)
def test_a_row_at_a_small_size(monkeypatch, row, size, small, what):
    """Eight ranks instead of sixty-four, ten megabytes instead of four hundred."""
    monkeypatch.setattr(row, size, small)
    (line,) = row.measure(quick=True)
    assert what in line.what
    assert 0.005 < line.value < 30 and line.ratio > 0.05


@pytest.mark.push("the benchmark")
def test_the_rows_of_the_network_and_the_doctor():
    """Small messages stay above the formula; the doctor's toys end."""
    rows = ordered_network.measure(quick=True)
    assert [line.ratio >= 1 for line in rows] == [True] * len(ordered_network.SIZES)
    line, _ = doctor_time.measure(quick=True)
    assert 0 < line.value < 10 * doctor_time.LIMIT_S and "toy" in line.what


@pytest.mark.push("the benchmark")
def test_the_recorded_run(monkeypatch, tmp_path):
    """Tables that chapter 02 can read back, pictures with every number in their alt text."""
    monkeypatch.setattr(recorded_run, "FIGURES", tmp_path)
    record = step_times.record_timings
    monkeypatch.setattr(step_times, "record_timings", lambda *args: record(*args, tmp_path))
    sizes = [Size(8, 1, 16), Size(16, 1, 16)]
    steps = step_times.dp_against_ddp(sizes, rounds=1, seconds=0.01)
    parts = step_times.breakdown(sizes, rounds=1, seconds=0.01)
    written = recorded_run.record(steps, parts)
    assert [path.suffix for path in written] == [".csv"] * 2 + [".svg"] * 3
    back = step_times.read_timings(folder=tmp_path)
    assert len(back) == len(steps)
    assert "torch" in back["machine"][0]
    assert back["machine"][0][-10:-6].isdigit(), "the year"
    assert written[2].read_text().count("width 8, depth 1, batch 16") >= 1
    lines = recorded_run.lines(steps, list(steps["candidate"].unique()))
    assert len(lines) == 2 * len(sizes)
    assert all(line.ratio > 0 for line in lines)


@pytest.mark.push("the benchmark")
def test_exercise_checks(monkeypatch):
    """A time for each exercise, one for a hang; a wrong solution is noticed."""
    monkeypatch.setattr(exercise_checks, "names", lambda: ["mean_over_ranks"])
    median, slowest, late = exercise_checks.measure(quick=True)
    assert 0.05 < median.value <= slowest.value < 30
    assert "mean_over_ranks" in median.note
    assert 0.1 < late.value < 80
    monkeypatch.setattr(exercise_checks.Exercise, "solution", "def mean_over_ranks(x):\n    1\n")
    with pytest.raises(AssertionError, match="not right"):
        exercise_checks.measure(quick=True)


@pytest.mark.push("the benchmark")
@slow_row
def test_a_room_of_few():
    """Readers who begin at once: right answers are accepted, and hangs are reported."""
    right, wrong = room.measure(quick=True)
    assert right.met and wrong.met, right.note


@pytest.mark.push("the benchmark")
def test_notebook_times(monkeypatch):
    """Each notebook's seconds are shown; a failed cell or one slow page misses the row."""
    monkeypatch.setattr(book, "execute", lambda path: path)
    monkeypatch.setattr(book, "errors", lambda notebook: [])
    half_day, with_06 = notebook_times.measure()
    assert half_day.met and with_06.met
    assert "00_start_here" in half_day.compared_with
    assert "06_" not in half_day.compared_with and "06_" in with_06.compared_with
    assert "_further_" not in with_06.compared_with
    assert not notebook_times.line({"00_a": 1.0, "01_b": 31.0}, [], 110, 30).met
    monkeypatch.setattr(book, "errors", lambda notebook: ["cell a: ValueError"])
    assert [line.met for line in notebook_times.measure()] == [False, False]
