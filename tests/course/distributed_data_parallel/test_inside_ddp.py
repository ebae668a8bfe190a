"""Claims of the pages on DDP's backward and constructor that no cell of them checks."""

import inspect
import signal

import pandas as pd
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook import launch
from ddp_workbook.chapters.digits import DigitsMLP
from ddp_workbook.exercises.distributed_data_parallel import bucketed_average
from ddp_workbook.experiments import arguments
from ddp_workbook.experiments.distributed_data_parallel import constructor, hooks, messages
from ddp_workbook.experiments.distributed_data_parallel.hooks import Backward
from ddp_workbook.experiments.distributed_data_parallel.messages import (
    BUFFERS,
    GRADIENTS,
    ORDER,
    SHAPES,
    STATE,
    Message,
)
from ddp_workbook.judging.advice import for_failure
from manyranks.diagnostics.failure_report import exit_status_in_words
from manyranks.errors import RankFailed
from manyranks.recording.collectives import record_collectives, run_and_record
from tests.workers import ddp_claims as workers

pytestmark = pytest.mark.push("claims of further pages")

ARGUMENTS = list(inspect.signature(DistributedDataParallel).parameters)
MIB = 2**20


def since(argument: str):
    """Skips nothing where torch has the argument; older ones do not."""
    return pytest.mark.skipif(argument not in ARGUMENTS, reason=f"this torch has no {argument}")


def messages_of(worker, ranks: int = 2, **arguments) -> pd.DataFrame:
    """Rank 0's messages, without the barrier at the end."""
    wire = record_collectives(worker, ranks=ranks, **arguments)
    return wire[(wire["rank"] == 0) & (wire["op"] != "barrier")]


def on_line(wire: pd.DataFrame, comment: str) -> list[tuple[str, int]]:
    """(op, bytes) of the messages from the worker's line that ends in this comment."""
    lines = inspect.getsource(workers).splitlines()
    numbers = [str(n) for n, text in enumerate(lines, start=1) if text.endswith(f"# {comment}")]
    assert numbers
    rows = wire[wire["line"].str.split(":").str[1].isin(numbers)]
    return list(zip(rows["op"], rows["bytes"], strict=True))


# Hooks


@pytest.fixture(scope="module")
def backward_passes() -> list[list[Backward]]:
    """Three backward passes on two ranks, in buckets of 1 MiB."""
    return hooks.record_backward_passes(ranks=2, steps=3, bucket_cap_mb=1)


def test_gradients_come_backwards_and_buckets_are_rebuilt_once(backward_passes):
    for steps in backward_passes:
        names = [name for name, _ in DigitsMLP(hooks.WIDTH, hooks.DEPTH).named_parameters()]
        for backward in steps[1:]:
            assert [one.name for one in backward.ready] == names[::-1]
        assert [len(backward.buckets) for backward in steps] == [1, 3, 3]
    table = hooks.order_table(backward_passes[0])
    assert list(table["bucket in step 1"]) == [0] * 8
    assert list(table["bucket since step 2"]) == [2, 2, 1, 1, 0, 0, 0, 0]
    in_bucket_0 = table.loc[table["bucket since step 2"] == 0, "bytes"]
    assert in_bucket_0.str.replace(",", "").astype(int).sum() == 1_071_144


def test_a_bucket_leaves_with_its_last_gradient_and_before_later_ones(backward_passes):
    for steps in backward_passes:
        backward = steps[-1]
        for bucket, messages_of in enumerate(backward.buckets):
            own = [one.at for one in backward.ready if one.bucket == bucket]
            assert max(own) <= messages_of.start <= messages_of.end
        assert backward.buckets[0].start < backward.last_gradient <= backward.end


def test_a_hook_on_a_parameter_sees_the_gradient_before_it_is_averaged():
    assert launch(workers.gradient_in_hook, ranks=2) == [(0.0, 0.5), (1.0, 0.5)]


# What is sent, call by call


@pytest.fixture(scope="module")
def sent_by_call() -> dict[str, dict[str, list[str]]]:
    """Model -> call -> kinds of its messages."""
    return {
        model: {
            call: [one.kind for one in there]
            for call, there in zip(messages.CALLS, of_calls, strict=True)
        }
        for model, of_calls in messages.with_and_without_buffers().items()
    }


def test_without_buffers_only_the_second_of_five_forwards_sends(sent_by_call):
    messages_of = sent_by_call["no buffers"]
    forwards = [call for call in messages_of if call.startswith(("forward", "evaluation"))]
    assert [call for call in forwards if messages_of[call]] == ["forward 2"] and len(forwards) == 5
    assert messages_of["forward 2"] == [ORDER, ORDER]
    assert messages_of["constructor"] == [SHAPES, SHAPES, STATE]
    assert [messages_of[f"backward {n}"] for n in (1, 2, 3)] == [[GRADIENTS]] * 3


def test_buffers_are_sent_before_a_forward_that_follows_one_with_gradients(sent_by_call):
    messages_of = sent_by_call["with BatchNorm"]
    with_buffers = [call for call, kinds in messages_of.items() if BUFFERS in kinds]
    assert with_buffers == ["forward 1", "forward 2", "forward 3", "evaluation 1"]
    assert messages_of["evaluation 2"] == []


def test_settings_of_the_table_show_on_the_wire_as_the_page_says():
    calls = ["constructor", "step 2", "step 3"]
    settings = [{}, {"bucket_cap_mb": 1e-5}, {"init_sync": False}, {"static_graph": True}]
    table = messages.settings_table(DigitsMLP, settings, calls).set_index("arguments")
    assert table.loc["none", "step 3"] == "19,240"
    assert table.loc["bucket_cap_mb=1e-05", "step 3"] == "40, 2,560, 256, 16,384"
    assert table.loc["init_sync=False", "constructor"] == "-"
    assert table.loc["static_graph=True", "step 3"] == table.loc["none", "step 2"]


def test_the_picture_of_messages_says_what_it_shows():
    calls = ["constructor", "forward 1"]
    messages_of = {"no buffers": [[Message(STATE, 1000)], []]}
    picture = messages.boxes(messages_of, calls)
    assert "constructor: parameters and buffers, 1,000 bytes" in picture.alt
    assert "Nothing is sent in forward 1" in picture.alt
    assert [text.get_text() for text in picture.axes.texts] == ["1,000 B"]


# Parameters that a step leaves out


def test_looking_for_unused_parameters_sends_more_and_not_less():
    table = messages.messages_with_unused_layer().set_index("arguments")
    assert list(table.loc["find_unused_parameters=True"]) == ["21,840, 24"] * 3
    assert list(table.loc["static_graph=True"]) == ["24, 21,840", "21,840", "28, 4, 21,840"]
    everything, less = (
        [int(size.replace(",", "")) for size in row.split(", ")] for row in table["step 3"][2:]
    )
    assert sum(everything) == 21_840 + 24
    assert len(less) == len(everything) - 1 and sum(less) == sum(everything) - 40


def test_what_no_rank_has_used_keeps_no_gradient():
    answers = launch(messages.steps_with_unused_layer, find_unused_parameters=True, ranks=2)
    assert answers == ["the gradient of spare is None"] * 2


def test_a_model_in_two_parts_has_the_gradients_of_one_process():
    devices, off = constructor.max_gradient_error(ranks=3)
    assert len(devices) == 2 and off < 1e-6


# The constructor's arguments


def test_every_argument_is_explained():
    assert [name for name in ARGUMENTS if name not in constructor.ARGUMENT_HELP] == []
    assert arguments.NEWER not in set(constructor.argument_table()["what it does"])


@pytest.fixture(scope="module")
def defaults() -> tuple[list, pd.DataFrame]:
    """Gradients and messages without any argument."""
    return run_and_record(workers.two_steps)


@pytest.mark.parametrize(
    "argument", [{"dim": 1}, {"check_reduction": True}, {"gradient_as_bucket_view": True}], ids=str
)
def test_arguments_that_change_no_message_and_no_gradient(defaults, argument):
    gradients, wire = run_and_record(workers.two_steps, **argument)
    torch.testing.assert_close(gradients, defaults[0], rtol=0, atol=0)
    columns = ["rank", "op", "bytes", "line"]
    pd.testing.assert_frame_equal(wire[columns], defaults[1][columns])


BUFFER_MESSAGES = [("broadcast", 2 * 8 * 4), ("broadcast", 8)]  # mean and variance; the counter


def test_buffers_are_sent_at_the_start_and_before_each_forward(defaults):
    wire = defaults[1][defaults[1]["rank"] == 0]
    assert on_line(wire, "constructor")[-1] == BUFFER_MESSAGES[1]
    assert [
        row for row in on_line(wire, "forward") if row in BUFFER_MESSAGES
    ] == 2 * BUFFER_MESSAGES


@since("broadcast_buffers")
def test_broadcast_buffers_leaves_them_alone_at_the_start_too():
    wire = messages_of(workers.two_steps, broadcast_buffers=False)
    assert BUFFER_MESSAGES[1] not in on_line(wire, "constructor") + on_line(wire, "forward")


@since("forward_sync_buffers")
def test_forward_sync_buffers_sends_them_at_the_start():
    wire = messages_of(workers.two_steps, forward_sync_buffers=False)
    assert on_line(wire, "constructor")[-1] == BUFFER_MESSAGES[1]
    assert BUFFER_MESSAGES[1] not in on_line(wire, "forward")


def test_init_sync_off_sends_nothing_at_the_start_and_weights_differ():
    (one, other), wire = run_and_record(workers.two_steps, init_sync=False)
    assert on_line(wire, "constructor") == []
    torch.testing.assert_close(one, other, rtol=0, atol=0)  # of weights that differ


def test_a_mesh_is_a_group():
    assert launch(workers.in_a_mesh, ranks=4) == [0.5, 0.5, 2.5, 2.5]


def test_a_bucket_is_full_at_25_mib_and_the_first_at_1():
    wire = messages_of(workers.large_model)
    sizes = [size / MIB for size in wire.loc[wire["op"] == "all_reduce", "bytes"]]
    assert sizes == [30, 1, 25, 4]  # the first step: one bucket with everything


@since("bucket_cap_mb_list")
def test_a_list_of_limits_holds_from_the_first_step_on():
    limits = [32 / MIB, 1.0]
    wire = messages_of(workers.two_steps, bucket_cap_mb_list=limits)
    sizes = [size for op, size in on_line(wire, "backward") if op == "all_reduce"]
    whole = 4 * (4 * 8 + 8 + 8 + 8 + 8 * 2 + 2)
    assert len(sizes) == 4 and sum(sizes[:2]) == sum(sizes[2:]) == whole


@since("delay_all_reduce_named_params")
def test_delayed_parameters_travel_apart():
    wire = messages_of(workers.delay_last_weight)
    whole, apart = 4 * (4 * 8 + 8 + 8 * 2 + 2), 4 * 8 * 2
    assert list(wire.loc[wire["op"] == "all_reduce", "bytes"]) == [apart, whole - apart]


@since("batched_grad_copy")
def test_batched_copies_are_one_a_bucket_and_change_no_gradient(defaults):
    gradients = launch(workers.two_steps, batched_grad_copy=True)
    torch.testing.assert_close(gradients, defaults[0])
    many, one = launch(workers.copies)[0], launch(workers.copies, batched_grad_copy=True)[0]
    assert many["_foreach_copy_"] == 0 and one["_foreach_copy_"] == 1


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("frozen", "doesn't have any parameter that requires a gradient"),
        ("device_ids", "only work with single-device"),
        ("output_device", "only work with single-device"),
        ("mixed_precision", "cpu backend doesn't support"),
    ],
)
def test_what_a_cpu_refuses(kind, words):
    assert words in launch(workers.constructor_error, kind, ranks=1, as_if_gpus=False)[0]


# Buffers and unused parameters, in other orders of calls


def test_buffers_are_sent_if_the_forward_before_was_one_with_gradients():
    wire = messages_of(workers.evaluations)
    counts = {
        when: len([row for row in on_line(wire, when) if row == ("broadcast", 8)])
        for when in ("first evaluation", "second evaluation")
    }
    assert counts == {"first evaluation": 1, "second evaluation": 0}
    assert on_line(wire, "the model inside") == []
    after = [on_line(wire, f"{which} step after it") for which in ("first", "second")]
    assert [("broadcast", 8) in rows for rows in after] == [False, True]


def test_the_first_step_with_an_unused_part_sends_nothing():
    own, wire = run_and_record(workers.first_step_with_an_unused_part)
    assert own == [True, True]
    assert "all_reduce" not in set(wire["op"])


@pytest.mark.parametrize("code", [-signal.SIGABRT, -signal.SIGSEGV])
def test_buckets_of_different_sizes_get_one_advice_however_gloo_dies_of_them(code):
    """Most often its reader of the socket aborts; on a busy machine it has crashed instead."""
    failure = RankFailed("", rank=3, reason=exit_status_in_words(code), returncode=code)
    advice = for_failure(failure, bucketed_average.CHECK.errors, group=True)
    assert advice.startswith("Buckets of different sizes met in one all_reduce")


def test_a_change_through_data_is_not_counted():
    gradient = torch.ones(1)
    before = gradient._version
    gradient.data.mul_(2)
    assert gradient._version == before
    gradient.mul_(2)
    assert gradient._version == before + 1
