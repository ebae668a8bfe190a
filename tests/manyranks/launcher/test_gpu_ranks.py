"""Ranks on a machine with one GPU: a single one has it and nccl, several share the CPU and gloo."""

import pytest
import torch

from ddp_workbook.chapters import (
    collectives,
    distributed_data_parallel,
    fully_sharded,
    fully_sharded_by_hand,
    samplers,
    single_process,
)
from ddp_workbook.experiments.fully_sharded.one_process import one_process
from ddp_workbook.experiments.start_here.sum_of_ranks import run_sum
from manyranks.launcher import rank_environment
from manyranks.launcher.launch import launch
from manyranks.recording.collectives import record_collectives
from tests.leaks import no_rank_left  # noqa: F401
from tests.workers import one_gpu as workers

gpu1 = pytest.mark.gpu1
RUN = {"epochs": 2, "batch_size": 64}


@gpu1
def test_a_single_rank_has_the_gpu_and_nccl():
    assert launch(workers.of_chapters, ranks=1) == [("cuda:0", "nccl", [3.0, 3.0])]


@gpu1
def test_more_ranks_than_gpus_meet_on_the_cpu():
    ranks = torch.cuda.device_count() + 1
    found = launch(workers.of_chapters, ranks=ranks)
    assert found == [("cpu", "gloo", [3.0 * ranks] * 2)] * ranks


@gpu1
def test_page_00s_sum_where_every_rank_sees_a_gpu(monkeypatch):
    monkeypatch.setattr(rank_environment, "has_gpu_per_rank", lambda ranks: True)
    assert launch(workers.sees_a_gpu, ranks=2) == [True, True]
    assert [held.after for held in launch(run_sum, ranks=4)] == [10] * 4


@gpu1
def test_a_cell_on_one_rank_can_send_from_both_devices():
    assert launch(workers.of_cells, ranks=1) == [("cuda:0", [1.0, 1.0], [1.0, 1.0])]


@gpu1
def test_a_result_on_the_gpu_comes_back_on_the_cpu():
    (found,) = launch(workers.on_the_device, ranks=1)
    assert found.device.type == "cpu" and found.tolist() == [0.0, 1.0, 2.0]


@gpu1
@pytest.mark.parametrize(
    "chapter",
    [distributed_data_parallel, samplers, collectives, fully_sharded_by_hand, fully_sharded],
)
def test_one_rank_on_the_gpu_equals_one_process(chapter):
    sharded = chapter in (fully_sharded_by_hand, fully_sharded)
    run = {"epochs": 1, "batch_size": 90} if sharded else RUN
    expected = one_process(**run) if sharded else single_process.train(**run)
    (trained,) = launch(chapter.train, ranks=1, **run)
    assert trained.losses == pytest.approx(expected.losses, abs=1e-3)


@gpu1
def test_what_goes_over_the_wire_is_recorded_under_nccl():
    """DDP's gradients, the sum of the losses, and the barrier at the end."""
    run = {"epochs": 1, "batch_size": 600}
    calls = record_collectives(distributed_data_parallel.train, ranks=1, **run)
    assert {"all_reduce", "barrier"} <= set(calls["op"])
    assert calls.loc[calls["op"] == "all_reduce", "bytes"].min() > 0
