"""What the page on mixed precision says, and no cell of it checks."""

import inspect
import threading

import pandas as pd
import pytest
import torch
from torch.nn.parallel import parallel_apply

from ddp_workbook import launch
from ddp_workbook.experiments.distributed_data_parallel import (
    autocast,
    half_precision_speed,
    loss_scaling,
)
from tests.workers import half_precision as workers

pytestmark = pytest.mark.push("claims of further pages")


def test_the_limits_of_the_formats_are_those_that_the_page_names():
    table = loss_scaling.format_table(torch.tensor([1.0, 1e-9]))
    assert torch.finfo(torch.float16).max == 65_504
    assert torch.finfo(torch.float16).smallest_normal == pytest.approx(0.00006, rel=0.02)
    half_of_the_smallest = loss_scaling.smallest(torch.float16) / 2
    assert half_of_the_smallest == pytest.approx(0.00000003, rel=0.01)
    assert torch.tensor([0.99, 1.01]).mul(half_of_the_smallest).half().ne(0).tolist() == [
        False,
        True,
    ]
    assert list(table["becomes 0"]) == ["0.0%", "0.0%", "50.0%"]
    assert list(table["digits"]) == ["6.9", "2.1", "3.0"]


def test_the_number_line_says_what_is_lost():
    values = torch.tensor([1e-9] * 3 + [1.0])
    assert "75% of them are below the line" in loss_scaling.number_line(values).alt


def test_softmax_and_sums_stay_in_16_bits_on_a_cpu():
    with torch.autocast("cpu", torch.float16):
        half = torch.ones(2, 2) @ torch.ones(2, 2)
        found = [half.softmax(1), half.sum(), torch.nn.functional.layer_norm(half, (2,))]
    assert {one.dtype for one in found} == {torch.float16}


def test_backward_computes_in_16_bits_and_ends_in_32():
    table = autocast.operations().query("`pass` == 'backward'")
    assert set(table.loc[table["operation"] == "mm", "gives"]) == {"float16"}
    assert table.iloc[-1][["operation", "gives"]].tolist() == ["convert", "float32"]


def test_autocast_and_its_format_belong_to_a_thread():
    found = []
    with torch.autocast("cpu", torch.float16):
        look = lambda: found.append(  # noqa: E731
            (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))
        )
        look()
        (thread := threading.Thread(target=look)).start()
        thread.join()
    assert found == [(True, torch.float16), (False, torch.bfloat16)]


def test_data_parallel_passes_on_whether_autocast_is_on_and_not_its_format():
    text = inspect.getsource(parallel_apply)
    assert "autocast(device_type, enabled=autocast_enabled)" in text


def test_a_scale_with_bfloat16_does_no_harm():
    losses = loss_scaling.train(torch.bfloat16, scaled=True, steps=60).losses
    assert losses[-1] < 2.2


def test_the_scale_falls_below_one_if_every_step_overflows(monkeypatch):
    monkeypatch.setattr(loss_scaling, "deep_sigmoids", workers.never_finite)
    run = loss_scaling.train(torch.float16, scaled=True, steps=20)
    assert run.scales[-1] < 1 and run.skipped_steps == list(range(20))
    assert "Skipped: steps 0, 1, 2" in loss_scaling.scales(run).alt


def test_a_cpu_has_not_every_operation_in_16_bits():
    with pytest.raises(RuntimeError, match="Low precision dtypes not supported"):
        torch.linalg.inv(torch.eye(2).half())


def test_shards_that_overflow_on_one_rank_are_skipped_by_all():
    """GradScaler sees DTensors, and asks the other ranks."""
    assert launch(workers.sharded_step_with_inf_on_rank_1, ranks=2) == [(0, 2.0**15)] * 2


def test_activations_are_what_autocast_makes_smaller():
    tables = autocast.memory_by_strategy()
    whole, half = tables["float32"], tables["bfloat16, autocast"]
    kept = ["parameters", "gradients", "optimizer state", "buckets"]
    pd.testing.assert_frame_equal(whole[kept], half[kept])
    assert (half["activations"] < whole["activations"]).all()
    weights = whole.loc["one process", "parameters"] / 2  # in 16 bits; biases are not kept
    saved = whole["activations"] / 2
    extra = half["activations"] - saved
    assert extra["one process"] == pytest.approx(weights, rel=0.1)


def test_flags_are_read_where_the_system_lists_them(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor : 0\nflags : fpu avx512_bf16 sse\n")
    assert half_precision_speed.flags(path)["here"].to_dict() == {
        flag: flag == "avx512_bf16" for flag in half_precision_speed.FLAGS
    }
    assert "does not list" in half_precision_speed.flags(tmp_path / "none")
