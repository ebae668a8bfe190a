"""Timings are warmed up, taken in turns and summarised right; the machine is described truly."""

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from ddp_workbook.page import machine
from manyranks.recording import timing
from manyranks.recording.timing import compare, speed_up, summary, time_step

FRAME = pd.DataFrame(
    [
        (name, n, seconds)
        for n, both in enumerate([(4.0, 2.0), (8.0, 2.0), (6.0, 4.0)], start=1)
        for name, seconds in zip(("one", "two"), both, strict=True)
    ],
    columns=["candidate", "round", "seconds"],
)


def test_rounds_are_interleaved_and_begin_with_another_candidate_each_time():
    calls = []

    def candidate(name):
        return lambda: calls.append(name) or float(len(calls))

    frame = compare({name: candidate(name) for name in "abc"}, rounds=3)
    assert "".join(calls) == "cab" + "abc" + "bca" + "cab"
    assert list(frame.columns) == ["candidate", "round", "seconds"]
    assert list(frame["candidate"]) == list("abcbcacab")  # the warm-up round is left out
    assert list(frame["round"]) == [1] * 3 + [2] * 3 + [3] * 3
    assert list(frame["seconds"]) == [float(n) for n in range(4, 13)]


def test_a_candidate_may_return_several_timings():
    frame = compare({"one": lambda: [0.5, 0.25], "two": lambda: np.ones(1)}, rounds=2)
    assert list(frame["seconds"]) == [0.5, 0.25, 1.0, 1.0, 0.5, 0.25]


def test_without_warm_up_every_call_counts():
    assert list(compare({"a": lambda: 1, "b": lambda: 2}, 1, warm_up=0)["seconds"]) == [1.0, 2.0]


@pytest.fixture
def clock(monkeypatch):
    """The clock of `timing`, which shows what `clock.sleep` adds up to, and no other time."""
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(timing, "time", clock)
    return clock


def test_no_round_is_begun_that_would_break_the_budget(clock):
    def slow():
        clock.sleep(0.25)
        return 1.0

    assert compare({"slow": slow}, 50, warm_up=0, budget=1.5)["round"].max() == 6
    assert compare({"slow": slow}, 50, budget=0)["round"].max() == 1  # a first one there must be


def test_a_candidates_own_error_reaches_the_reader():
    def broken():
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        compare({"broken": broken})


def test_time_step_leaves_the_warm_up_out_and_times_each_call(clock):
    calls = []

    def step():
        calls.append(None)
        clock.sleep(0.5 * len(calls))

    assert time_step(step, warm_up=2, repeats=3) == [1.5, 2.0, 2.5]
    assert len(calls) == 5


def test_time_step_waits_for_the_device_before_every_reading_of_the_clock(monkeypatch):
    events = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append(device))
    time_step(lambda: events.append("step"), warm_up=0, repeats=2, device="cuda:1")
    assert events == ["cuda:1", "step", "cuda:1"] * 2


def test_nothing_is_timed_in_no_rounds_or_repeats():
    with pytest.raises(ValueError, match="rounds is 0"):
        compare({"one": lambda: 1.0}, rounds=0)
    with pytest.raises(ValueError, match="repeats is 0"):
        time_step(lambda: None, repeats=0)


def test_summary_has_median_quartiles_and_ratio():
    table = summary(FRAME, baseline="one").set_index("candidate")
    assert list(table.columns) == ["n", "q1", "median", "q3", "ratio"]
    assert list(table.loc["one"]) == [3, 5.0, 6.0, 7.0, 1.0]
    assert list(table.loc["two"]) == [3, 2.0, 2.0, 3.0, 2.0 / 6.0]


def test_summary_keeps_sizes_apart_and_compares_within_a_size():
    slower = FRAME.assign(seconds=FRAME["seconds"] * 10)
    sizes = pd.concat([FRAME.assign(width=64), slower.assign(width=256)])
    table = summary(sizes, baseline="two")
    assert list(table["width"]) == [64, 64, 256, 256]
    assert list(table["median"]) == [6.0, 2.0, 60.0, 20.0]
    assert list(table["ratio"]) == pytest.approx([3.0, 1.0, 3.0, 1.0])


def test_summary_drops_the_machine_if_there_is_one_and_keeps_two_apart():
    own_machine = FRAME.assign(machine="mine")
    assert "machine" not in summary(own_machine)
    assert len(summary(pd.concat([own_machine, FRAME.assign(machine="yours")]))) == 4


def test_speed_up_compares_the_same_round():
    table = speed_up(FRAME, baseline="one").set_index("candidate")
    assert table.loc["two", "median"] == 2.0  # of 2.0, 4.0 and 1.5; the medians' ratio would be 3
    assert list(table.loc["one", ["q1", "median", "q3"]]) == [1.0, 1.0, 1.0]


def test_speed_up_keeps_the_machine():
    table = speed_up(FRAME.assign(machine="here"), baseline="one")
    assert list(table["machine"]) == ["here"] * 2
    assert "machine" not in speed_up(FRAME, baseline="one")


@pytest.mark.parametrize("table", [summary, speed_up])
def test_an_unknown_baseline_is_answered_with_those_there_are(table):
    with pytest.raises(ValueError, match="'three' is none of one, two"):
        table(FRAME, baseline="three")


def test_the_machine_is_described_and_nobody_is_named():
    here = machine.machine()
    text = " ".join([str(here), machine.machine_name(), machine.machine_table().data.to_string()])
    assert here["torch"] == torch.__version__
    assert 1 <= here["cores"] <= os.cpu_count()
    assert "gloo" in here["backends"]
    assert not {socket.gethostname(), Path.home().name, str(Path.home())} & set(text.split())


def test_the_machine_table_says_what_each_row_means():
    table = machine.machine_table().data
    assert list(table.columns) == ["what", "here", "what this means for you"]
    assert (table.map(len) > 0).all(axis=None)


def test_the_machine_name_counts_gpus_of_one_kind(monkeypatch):
    names = ["A", "A", "B"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(names))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: names[index])
    assert machine.machine_name().startswith("2 x A, 1 x B, ")
    assert "Up to 3 ranks run on one GPU each" in machine.machine_table().data.to_string()


def test_synchronising_a_cpu_does_not_touch_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: pytest.fail("touched the GPU"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)  # by this process
    timing.synchronise("cpu")
    timing.synchronise(None)
