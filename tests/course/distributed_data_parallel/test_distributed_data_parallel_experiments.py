"""The timings of chapters 01 and 02: the chapters' own code, on the devices that are named."""

import math
from functools import partial

import pandas as pd
import pytest
import torch

from ddp_workbook.chapters import data_parallel, single_process
from ddp_workbook.experiments.data_parallel import step_times as of_chapter_01
from ddp_workbook.experiments.data_parallel.step_times import Size
from ddp_workbook.experiments.distributed_data_parallel import step_times as of_chapter_02

SMALL = (Size(8, 1, 16), Size(16, 2, 2000))  # the second batch is larger than the data set
FRAME = pd.DataFrame(
    {
        "width": [8],
        "depth": [1],
        "batch": [16],
        "candidate": ["DDP, 2 ranks"],
        "round": [1],
        "seconds": [0.25],
        "machine": ["2 cores of a test"],
    }
)


@pytest.fixture
def gpus(monkeypatch):
    def pretend(count):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Test GPU")

    return pretend


@pytest.mark.push("claims of the pages that take long")
def test_every_candidate_is_timed_at_every_size_in_every_round(gpus, monkeypatch):
    monkeypatch.setattr(of_chapter_01, "usable_cores", lambda: 2)
    gpus(0)
    frame = of_chapter_02.dp_against_ddp(SMALL, rounds=2, seconds=0.01)
    assert list(frame) == list(FRAME)
    assert frame.groupby(["width", "depth", "batch"], sort=False).ngroups == 2
    assert list(frame["width"]) == sorted(frame["width"])
    assert frame.groupby(["width", "candidate", "round"]).size().eq(1).all()
    assert list(frame["candidate"].unique()) == [
        "one process, 1 thread",
        "one process, 2 threads",
        "DataParallel, 2 replicas (stand-in: CPU threads)",
        "DDP, 2 ranks",
    ]
    assert frame["seconds"].between(0, 10, inclusive="neither").all()


def test_the_parts_of_a_step_are_all_there(gpus):
    gpus(0)
    frame = of_chapter_02.breakdown(SMALL[:1], rounds=1, seconds=0.01)
    assert list(frame) == list(FRAME.rename(columns={"round": "part"}))
    parts = frame.groupby("candidate", sort=False)["part"].agg(list)
    assert list(parts) == [
        ["replicate", "scatter", "compute", "gather", "optimizer"],
        ["compute", "optimizer", "all-reduce not hidden"],
    ]
    assert (frame["seconds"] >= 0).all()
    assert frame.set_index("part")["seconds"]["compute"].gt(0).all()


def test_two_gpus_are_measured_and_named(gpus):
    gpus(2)
    assert list(of_chapter_02.candidates(SMALL, 0.1)) == [
        "one GPU",
        "DataParallel, 2 GPUs",
        "DDP, 2 GPUs",
    ]


def test_one_core_has_one_candidate_of_one_process(gpus, monkeypatch):
    gpus(0)
    monkeypatch.setattr(of_chapter_01, "usable_cores", lambda: 1)
    assert [name for name in of_chapter_02.candidates(SMALL, 0.1) if "process" in name] == [
        "one process, 1 thread"
    ]


@pytest.mark.parametrize("count, hidden", [(0, True), (1, True), (2, False)])
def test_a_single_gpu_is_given_to_nobody(gpus, monkeypatch, count, hidden):
    gpus(count)
    given = []
    monkeypatch.setattr(
        of_chapter_01,
        "run_ranks",
        lambda *_, environment, **__: given.append(environment) or [[[0.1]]],
    )
    for candidate in of_chapter_02.candidates(SMALL[:1], 0.1).values():
        assert candidate() == [0.1]
    assert all((environment == {"CUDA_VISIBLE_DEVICES": ""}) == hidden for environment in given)


def test_threads_of_one_process_and_of_ranks_are_as_named(gpus, monkeypatch):
    gpus(0)
    monkeypatch.setattr(of_chapter_01, "usable_cores", lambda: 6)
    given = {}
    for name, candidate in of_chapter_02.candidates(SMALL[:1], 0.1).items():
        monkeypatch.setattr(
            of_chapter_01,
            "run_ranks",
            lambda call, ranks, *_, threads, name=name, **__: (
                given.setdefault(name, (ranks, threads)) and [[[0.1]]]
            ),
        )
        candidate()
    assert list(given.values()) == [(1, 1), (1, 6), (1, 2), (2, 1)]


def test_a_step_is_as_long_as_its_slowest_ranks(gpus, monkeypatch):
    gpus(0)
    ranks = [[[1.0, 5.0, 1.0], [1.0]], [[4.0, 2.0, 2.0], [3.0]]]  # of two ranks, at two sizes
    monkeypatch.setattr(of_chapter_01, "run_ranks", lambda *_, **__: ranks)
    assert of_chapter_02.candidates(SMALL, 0.1)["DDP, 2 ranks"]() == [4.0, 3.0]


def test_what_the_all_reduce_adds_is_never_negative(gpus, monkeypatch):
    gpus(0)
    of_replicas = [[{"compute": 1.0}]]
    of_ranks = [[[(1.0, 3.0, 0.5)]], [[(2.0, 1.0, 0.25)]]]  # together, alone, optimizer
    monkeypatch.setattr(
        of_chapter_01,
        "run_ranks",
        lambda call, ranks, *_, **__: of_replicas if ranks == 1 else of_ranks,
    )
    frame = of_chapter_02.breakdown(SMALL[:1], rounds=1)
    ddp = frame[frame["candidate"] == "DDP, 2 ranks"].set_index("part")["seconds"]
    assert dict(ddp) == {"compute": 3.0, "optimizer": 0.5, "all-reduce not hidden": 0.0}


def test_the_chapters_own_steps_are_timed(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    calls = []

    def count_calls(function, *args):
        calls.append(len(args[1]))
        return function(*args)

    for chapter in (single_process, data_parallel):
        monkeypatch.setattr(
            chapter, "forward_and_backward", partial(count_calls, chapter.forward_and_backward)
        )
    ((small, large),) = [of_chapter_01.one_process(SMALL, 0.0)]
    assert calls == [16] * 4 + [2000] * 4  # two to warm up, two timed
    assert len(small) == len(large) == 2
    calls.clear()
    assert [len(one) for one in of_chapter_01.replicas(SMALL[:1], 0.0, 2)] == [2]
    assert calls == [16] * 4


def test_the_clocks_are_taken_off_again(monkeypatch):
    before = [getattr(data_parallel, name) for name in of_chapter_01.OPERATIONS]
    (parts,) = of_chapter_01.parts_of_replicas(SMALL[:1], 0.01, 2)
    assert [getattr(data_parallel, name) for name in of_chapter_01.OPERATIONS] == before
    assert list(parts) == ["replicate", "scatter", "compute", "gather", "optimizer"]
    monkeypatch.setattr(data_parallel, "forward_and_backward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        of_chapter_01.parts_of_replicas(SMALL[:1], 0.01, 2)
    assert [getattr(data_parallel, name) for name in of_chapter_01.OPERATIONS] == before


def test_a_run_is_recorded_and_read_back(tmp_path):
    path = of_chapter_02.record_timings(FRAME, "mine", tmp_path / "new")
    pd.testing.assert_frame_equal(of_chapter_02.read_timings("mine", path.parent), FRAME)
    assert [file.name for file in path.parent.iterdir()] == ["mine.csv"]


@pytest.mark.gpu
def test_two_gpus_beat_one_process_on_a_large_batch():
    frame = of_chapter_02.dp_against_ddp([Size(4096, 4, 8192)], rounds=3, seconds=0.5)
    medians = frame.groupby("candidate")["seconds"].median()
    assert medians["DDP, 2 GPUs"] < medians["one GPU"]
    parts = of_chapter_02.breakdown([Size(4096, 4, 8192)], rounds=1)
    assert parts["seconds"].sum() < math.inf
    assert "GPU" in frame["machine"].iloc[0]
