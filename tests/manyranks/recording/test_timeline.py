"""Where a step of each rank went, on one clock; from ranks here, and from traces of any origin."""

import gzip
import itertools
import json

import numpy
import pytest

from ddp_workbook import timeline, timeline_of_files
from manyranks import errors
from manyranks.recording import traces
from manyranks.recording.timeline import Straggler, timeline_of
from tests.commands import run
from tests.workers import timeline_workers as workers

SCRIPT = workers.__file__


# Spans


def spans(*pairs: tuple[float, float]) -> numpy.ndarray:
    """As an array."""
    return numpy.array(pairs, dtype=float).reshape(-1, 2)


def test_spans_are_joined_cut_and_taken_away():
    """The arithmetic of times."""
    assert traces.union(spans((3, 4), (0, 1), (0.5, 2), (2, 2.5))).tolist() == [[0, 2.5], [3, 4]]
    assert traces.union(spans()).shape == (0, 2)
    assert traces.clip(spans((0, 2), (3, 4)), 1, 3.5).tolist() == [[1, 2], [3, 3.5]]
    rest = traces.difference(spans((0, 10)), spans((-1, 1), (3, 4), (9, 12)))
    assert rest.tolist() == [[1, 3], [4, 9]]
    assert traces.intersection(spans((0, 3), (5, 9)), spans((2, 6))).tolist() == [[2, 3], [5, 6]]
    assert traces.length(spans((0, 1), (3, 5))) == 3


# Traces as files


def event(name: str, start: float, end: float, **more) -> dict:
    """A span of a trace, in milliseconds."""
    return {"ph": "X", "name": name, "ts": start * 1e3, "dur": (end - start) * 1e3, **more}


def write_trace(path, rank: int, events: list[dict], host: str = "a", base: int = 0):
    """A trace's file."""
    content = {
        "distributedInfo": {"rank": rank},
        "host_name": host,
        "baseTimeNanoseconds": base,
        "traceEvents": events,
    }
    path.write_text(json.dumps(content))
    return path


def a_step(late: float = 0.0, shift: float = 0.0) -> list[dict]:
    """10 to 30 ms: compute to 20, loading to 22, an all-reduce from 18 + late to 28 + late."""
    return [
        event("Optimizer.step#SGD.step", shift + 9, shift + 10),
        event("aten::mm", shift + 10, shift + 20 + late),
        event("aten::add", shift + 12, shift + 13),
        event("enumerate(DataLoader)#_Single.__next__", shift + 19 + late, shift + 22 + late),
        event("gloo:all_reduce", shift + 18 + late, shift + 28),
        event("Optimizer.step#SGD.step", shift + 29, shift + 30),
    ]


def test_the_parts_of_a_step(tmp_path):
    """Rank 1 enters the all-reduce 3 ms later: 2 of them rank 0 waits, 1 it still computes."""
    files = [write_trace(tmp_path / f"{rank}.json", rank, a_step(3.0 * rank)) for rank in (1, 0)]
    first, second = traces.parts_of_steps(traces.read_traces(files)).to_dict("records")
    parts = {part: round(first[part] * 1e3, 6) for part in ("seconds", *traces.PARTS)}
    # exposed from 22 on; rank 1 enters at 21, when rank 0 still loads
    assert parts == {
        "seconds": 20, "compute": 10, "loading": 2, "exposed": 6, "waiting": 0, "other": 2
    }  # fmt: skip
    assert first["communication"] == pytest.approx(10e-3) and first["hidden"] == pytest.approx(0.4)
    assert second["compute"] == pytest.approx(13e-3) and second["exposed"] == pytest.approx(3e-3)


def test_waiting_for_the_last_rank(tmp_path):
    """6 ms of it in the open, and the cause: it computes longer."""
    files = [write_trace(tmp_path / f"{rank}.json", rank, a_step(7.0 * rank)) for rank in (0, 1)]
    result = timeline_of(traces.read_traces(files))
    assert result.parts["waiting"].tolist() == pytest.approx([3e-3, 0])
    assert result.straggler() == Straggler(1, 1, 1, "compute")
    assert result.describe().endswith("rank 1 is late in 1 of 1 steps (its computing).")


def test_steps_that_are_marked_twice(tmp_path):
    """By profiler.step() and by the optimizer, and on a GPU again with their kernels."""
    marks = [
        one
        for step in range(3)
        for one in (
            event(f"ProfilerStep#{step}", 10 * step, 10 * step + 10),
            event(f"ProfilerStep#{step}", 10 * step + 1, 10 * step + 12, cat="gpu_user_annotation"),
            event("Optimizer.step#SGD.step", 10 * step + 8, 10 * step + 9),
            event("aten::mm", 10 * step + 1, 10 * step + 5),
        )
    ]
    parts = traces.parts_of_steps(traces.read_traces([write_trace(tmp_path / "0.json", 0, marks)]))
    assert parts["seconds"].tolist() == pytest.approx([10e-3, 10e-3])


def test_kernels_of_a_gpu(tmp_path):
    """Where there are any, they count: NCCL's are communication, all others computing."""
    kernels = [
        event("aten::mm", 0, 100),
        event("sgemm_128", 0, 10, cat="kernel"),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 8, 15, cat="kernel"),
    ]
    (row,) = traces.parts_of_steps(
        traces.read_traces([write_trace(tmp_path / "0.json", 0, kernels)])
    ).to_dict("records")
    assert row["compute"] == pytest.approx(10e-3) and row["exposed"] == pytest.approx(5e-3)


def test_hosts_have_clocks_of_their_own(tmp_path):
    """A call of all ends at one time; on one host nothing is shifted."""
    files = [
        write_trace(tmp_path / "0.json", 0, a_step(), "a"),
        write_trace(tmp_path / "1.json", 1, a_step(3.0, shift=5000), "b"),
        write_trace(tmp_path / "2.json", 2, a_step(), "a", base=1_000_000),
    ]
    zero, one, two = traces.read_traces(files)
    assert one.calls[0].tolist() == pytest.approx([21e-3, 28e-3])
    for name in ("compute", "loading", "communication", "steps"):  # all are on the first's clock
        ends = [getattr(trace, name)[-1, 1] for trace in (zero, one)]
        assert ends[1] - ends[0] == pytest.approx(3e-3 * (name in ("compute", "loading"))), name
    assert one.events[0]["ts"] == pytest.approx(9e3)
    assert two.calls[0].tolist() == pytest.approx((zero.calls[0] + 1e-3).tolist())


def test_calls_that_do_not_belong_together(tmp_path):
    """Ranks in groups of their own: nobody is said to wait."""
    other = [*a_step(7.0), event("gloo:broadcast", 14, 15)]
    files = [
        write_trace(tmp_path / "0.json", 0, a_step()),
        write_trace(tmp_path / "1.json", 1, other),
    ]
    result = timeline_of(traces.read_traces(files))
    assert result.parts["waiting"].tolist() == [0, 0] and result.straggler() is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is no trace of torch.profiler: JSONDecodeError"),
        ("[]", "is no trace"),
        ("{}", "is no trace"),
        ('{"traceEvents": []}', "does not say of which rank"),
        ('{"traceEvents": [], "distributedInfo": {"rank": 0}}', "no operator and no step"),
    ],
)
def test_what_is_no_trace(tmp_path, content, said):
    """Is named, with what would be one."""
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(errors.WorkbookError, match=said):
        timeline_of(traces.read_traces([tmp_path / "x.json"]))


def test_no_file_two_of_a_rank_and_one_too_large(tmp_path, monkeypatch):
    """Each a sentence."""
    for paths, said in (
        ([], "There is no trace"),
        ([tmp_path / "none.json"], "FileNotFoundError"),
        ([write_trace(tmp_path / f"{n}.json", 0, a_step()) for n in (1, 2)], "Rank 0 has several"),
    ):
        with pytest.raises(errors.WorkbookError, match=said):
            traces.read_traces(paths)
    monkeypatch.setattr(traces, "MAX_TRACE_BYTES", 100)
    with pytest.raises(errors.WorkbookError, match="Profile fewer steps"):
        traces.read_traces([tmp_path / "1.json"])


def test_a_compressed_trace(tmp_path):
    """As TensorBoard's handler writes it."""
    text = write_trace(tmp_path / "0.json", 0, a_step()).read_text()
    with gzip.open(tmp_path / "1.json.gz", "wt") as file:
        file.write(text)
    assert len(traces.read_traces([tmp_path / "1.json.gz"])[0].steps) == 2
    assert "rank 0" in timeline_of_files(tmp_path / "1.json.gz").lanes().alt


# From ranks


@pytest.fixture(scope="module")
def healthy():
    """A training on two ranks."""
    return timeline(workers.train, ranks=2, steps=4)


def test_parts_add_up_and_results_come_back(healthy):
    """A row for each of 4 steps and 2 ranks."""
    parts = healthy.parts
    assert healthy.results == [0, 1]
    assert [*zip(parts["step"], parts["rank"], strict=True)] == [
        (step, rank) for step in (1, 2, 3, 4) for rank in (0, 1)
    ]
    sums = parts[list(traces.PARTS)].sum(axis=1)
    assert sums.tolist() == pytest.approx(parts["seconds"].tolist())
    assert (parts[list(traces.PARTS)] >= -1e-9).all(axis=None)
    assert (parts["compute"] > 0).all() and (parts["communication"] > 0).all()


@pytest.mark.parametrize(("late", "cause"), [("loader", "loading"), ("code", "other")])
@pytest.mark.parametrize("network", [None, "1 Gbit/s, 0.1 ms"])
def test_a_late_rank_is_named_with_its_cause(late, cause, network):
    """It sleeps for more than a step."""
    result = timeline(workers.train, late, 1, ranks=3, steps=4, network=network)
    straggler = result.straggler()
    assert (straggler.rank, straggler.of, straggler.cause) == (1, 4, cause) and straggler.steps >= 3
    waited = result.parts.groupby("rank")["waiting"].mean()
    assert waited[0] > 0.5 * workers.SLEEP > waited[1]


def test_a_slow_network_is_exposed_communication():
    """6.3 MB at 100 Mbit/s take 504 ms, and the model computes for less than that."""
    result = timeline(workers.train, ranks=2, steps=2, network="100 Mbit/s")
    mean = result.parts.mean()
    assert mean["communication"] >= 0.5 and mean["exposed"] + mean["waiting"] > 0.2
    assert {"network:all_reduce"} <= {event["name"] for event in result.traces[0].events}


def test_a_worker_without_an_optimizer_is_one_step():
    """From its beginning to its end."""
    result = timeline(workers.sums, ranks=2)
    assert result.results == [20.0, 20.0] and result.parts["step"].tolist() == [1, 1]


def test_what_goes_wrong():
    """As in a launch, or in words of its own."""
    with pytest.raises(errors.WorkbookError, match="no operator and no step"):
        timeline(workers.nothing, ranks=2)
    with pytest.raises(errors.RankFailed, match="the second step"):
        timeline(workers.fails_in_the_second_step, ranks=2)
    with pytest.raises(errors.LaunchRefused, match="steps=0"):
        timeline(workers.nothing, steps=0)


def test_the_file_for_perfetto(healthy, tmp_path):
    """One process a rank; times of both on one clock."""
    path = healthy.save(tmp_path / "all.json")
    events = json.loads(path.read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {0: "rank 0", 1: "rank 1"}
    assert {e["pid"] for e in events} == {0, 1}
    starts = [e["ts"] for e in events if e["name"] == "gloo:all_reduce"]
    assert max(starts) - min(starts) < 60e6  # microseconds


def test_calls_that_are_under_way_at_once_have_rows_of_their_own(tmp_path):
    """Perfetto drops spans that overlap in a row, and arrows of two ranks with one number."""
    result = timeline(workers.train, ranks=2, steps=2, network="100 Mbit/s")
    events = json.loads(result.save(tmp_path / "all.json").read_text())["traceEvents"]
    rows = {}
    for event in sorted((e for e in events if "network:" in e["name"]), key=lambda e: e["ts"]):
        rows.setdefault((event["pid"], event["tid"]), []).append(
            (event["ts"], event["ts"] + event["dur"])
        )
    assert (1, "network 2") in rows
    assert all(a[1] <= b[0] for row in rows.values() for a, b in itertools.pairwise(row))
    arrows = [e["id"] for e in events if e["ph"] == "s"]
    assert arrows and len(arrows) == len({*arrows})


def test_pictures_say_what_they_show(healthy):
    """Means of the steps, and one step."""
    assert "rank 0" in healthy.bars().alt and "exposed" in healthy.bars().alt
    assert "rank 1, network" in healthy.lanes(2).alt
    with pytest.raises(errors.WorkbookError, match="no step 9: the timeline has 1 to 4"):
        healthy.lanes(9)
    assert "of a step is exposed communication" in repr(healthy)


# The command


def test_the_command(tmp_path):
    """A script with words of its own; the table, the sentence, the file."""
    line = ["profile", SCRIPT, "--ranks", "2", "--steps", "2", "--to", str(tmp_path / "t.json")]
    code, output = run(*line, "--", "loader")
    assert code == 0, output
    assert (
        "rank 1 is late in" in output
        and "ui.perfetto.dev" in output
        and (tmp_path / "t.json").exists()
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [(["none.py"], "none.py"), ([SCRIPT, "--network", "fast"], "is no link")],
)
def test_a_command_that_cannot_be_met(words, said):
    """Exit code 2, in a sentence."""
    code, output = run("profile", *words)
    assert code == 2 and said in output
