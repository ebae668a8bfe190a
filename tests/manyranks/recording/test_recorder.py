"""`record_collectives` against traffic that is known beforehand, on real ranks."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from manyranks.errors import LaunchRefused, RankFailed
from manyranks.recording.collectives import record_collectives, run_and_record
from manyranks.recording.operations import FIELDS, single_calls
from tests.workers import recorder_workers as workers

COLUMNS = ["rank", "seq", *FIELDS]
LISTS = torch.__version__ >= "2.13"  # gloo has no all_to_all of lists before
FLOAT = 4  # bytes


def of(wire: pd.DataFrame, rank: int, *columns: str) -> list[tuple]:
    """The rows of one rank as tuples, missing values as None."""
    rows = wire[wire["rank"] == rank][list(columns)].astype(object)
    return list(rows.where(rows.notna(), None).itertuples(index=False, name=None))


def line_of(comment: str) -> str:
    """`file.py:12` of the worker line that ends in this comment."""
    lines = Path(workers.__file__).read_text().splitlines()
    (number,) = (n for n, text in enumerate(lines, start=1) if text.endswith(f"# {comment}"))
    return f"recorder_workers.py:{number}"


def test_a_functional_batch_is_a_row_for_each_send_and_receive():
    """As torch.compile hands it over."""
    batch = {"op_list": ["isend", "irecv"], "peer_list": [1, 2], "tensors": "ab", "group_name": "0"}
    assert list(single_calls("batch_p2p_ops", batch)) == [
        ("isend", {"tensor": "a", "dst": 1, "group_name": "0"}),
        ("irecv", {"tensor": "b", "dst": 2, "group_name": "0"}),
    ]
    assert list(single_calls("all_reduce_", batch)) == [("all_reduce_", batch)]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_each_collective(ranks):
    wire = record_collectives(workers.every_collective, ranks=ranks)
    one, all_of_them, n = 2 * FLOAT, 2 * FLOAT * ranks, ranks
    many = ((2,),) * n
    for rank in range(ranks):
        root = rank == 1
        assert of(wire, rank, "op", "peer", "shape", "bytes", "received") == [
            ("all_reduce", None, (2,), one, one),
            ("all_reduce", None, (2,), one, one),
            ("broadcast", 1, (2,), one, 0 if root else one),
            ("reduce", 1, (2,), one, one if root else 0),
            ("all_gather", None, (2,), one, all_of_them),
            ("gather", 1, (2,), one, all_of_them if root else 0),
            ("scatter", 1, many if root else (2,), all_of_them if root else one, one),
            ("reduce_scatter", None, many, all_of_them, one),
            *([("all_to_all", None, many, all_of_them, all_of_them)] if LISTS else []),
            ("all_gather_into_tensor", None, (2,), one, all_of_them),
            ("reduce_scatter_tensor", None, (2 * n,), all_of_them, one),
            ("all_to_all_single", None, (2 * n,), all_of_them, all_of_them),
            ("barrier", None, None, 0, 0),
            ("monitored_barrier", None, None, 0, 0),
        ]
    assert set(wire["group"]) == {"default"}
    assert set(wire["line"].str.split(":").str[0]) == {"recorder_workers.py"}


def test_the_table_itself():
    wire = record_collectives(workers.every_collective, ranks=3)
    assert list(wire.columns) == COLUMNS
    assert wire[["rank", "seq"]].to_numpy().tolist() == [
        [rank, seq] for rank in range(3) for seq in range(1, 14 + LISTS)
    ]
    assert wire.dtypes[["rank", "seq", "bytes", "received"]].eq("int64").all()
    assert wire["peer"].dtype == "Int64"
    assert len(wire.query("peer == 1 and rank == 0")) == 4
    lines = wire[wire["rank"] == 0]["line"].str.split(":").str[1].astype(int)
    assert lines.is_monotonic_increasing and lines.is_unique


@pytest.mark.parametrize("ranks", [1, 3])
def test_no_traffic_is_an_empty_table(ranks):
    results, wire = run_and_record(workers.alone, 1, b=2, ranks=ranks)
    assert results == [3] * ranks
    assert wire.empty and list(wire.columns) == COLUMNS
    assert wire["bytes"].sum() == 0 and wire["peer"].dtype == "Int64"


@pytest.mark.parametrize("ranks", [2, 3])
def test_functional_collectives(ranks):
    wire = record_collectives(workers.functional_collectives, ranks=ranks)
    one, all_of_them = 2 * FLOAT, 2 * FLOAT * ranks
    for rank in range(ranks):
        assert of(wire, rank, "group", "op", "peer", "bytes", "received") == [
            ("default", "all_reduce", None, one, one),
            ("default", "all_gather_into_tensor", None, one, all_of_them),
            ("default", "reduce_scatter_tensor", None, all_of_them, one),
            ("default", "broadcast", 1, one, 0 if rank == 1 else one),
            ("default", "all_to_all_single", None, all_of_them, all_of_them),
        ]


def test_a_coalesced_call_is_one_row_with_several_shapes():
    wire = record_collectives(workers.coalesced)
    for rank in range(2):
        assert of(wire, rank, "op", "shape", "bytes", "received") == [
            ("all_reduce", ((2,), (3, 1)), 5 * FLOAT, 5 * FLOAT),
            ("all_gather_into_tensor", ((2,), (3,)), 5 * FLOAT, 10 * FLOAT),
        ]


def test_dtypes():
    wire = record_collectives(workers.dtypes)
    indices_and_values = 2 * 6 * 8 + 6 * FLOAT
    assert of(wire, 0, "shape", "dtype", "bytes") == [
        ((3,), "float64", 24),
        ((3,), "int8", 3),
        ((3, 2), "float32", 24),  # a complex number travels as two
        ((), "float32", 4),
        ((0,), "float32", 0),
        ((2, 3), "float32", indices_and_values),
    ]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_ring_of_sends(ranks):
    results, wire = run_and_record(workers.ring, ranks=ranks)
    assert results == [float((rank - 1) % ranks) for rank in range(ranks)]
    for rank in range(ranks):
        right, left = (rank + 1) % ranks, (rank - 1) % ranks
        assert of(wire, rank, "op", "peer", "bytes", "received") == [
            ("send", right, 16, 0),
            ("recv", left, 16, 16),
            ("send", right, 16, 0),
            ("recv", left, 16, 16),
        ]


def test_a_receive_from_any_source_names_no_peer():
    wire = record_collectives(workers.from_anyone)
    assert of(wire, 0, "op", "peer", "bytes") == [("recv", None, FLOAT)]
    assert of(wire, 1, "op", "peer", "bytes") == [("send", 0, FLOAT)]


def test_object_collectives_are_the_operations_on_bytes_that_they_are_made_of():
    wire = record_collectives(workers.objects)
    length = wire["bytes"].max()
    assert of(wire, 1, "op", "dtype", "bytes") == [
        ("all_gather", "int64", 8),
        ("all_gather", "uint8", length),
        ("broadcast", "int64", 8),
        ("broadcast", "uint8", length),
        ("all_gather", "int64", 8),
        ("gather", "uint8", length),
    ]


def test_groups_are_named_by_members_and_peers_are_global():
    wire = record_collectives(workers.subgroups, ranks=4)
    pair = "ranks 1,2"
    assert of(wire, 1, "group", "op", "peer") == [
        (pair, "broadcast", 2),
        (pair, "broadcast", 1),
        (pair, "send", 2),
        ("ranks 0,1,2,3", "all_reduce", None),
    ]
    assert of(wire, 2, "group", "op", "peer")[2] == (pair, "recv", 1)
    assert of(wire, 2, "received") == [(0,), (8,), (8,), (8,)]
    for outsider in (0, 3):  # new_group itself sends nothing on gloo
        assert of(wire, outsider, "group", "op") == [("ranks 0,1,2,3", "all_reduce")]


@pytest.mark.parametrize("ranks", [2, 3])
def test_what_ddp_sends(ranks):
    sizes, steps = (6, 5, 3), 3
    wire = record_collectives(workers.ddp, sizes, steps, ranks=ranks)
    model = (6 * 5 + 5 + 5 * 3 + 3) * FLOAT
    constructor, forward, backward, step = (
        line_of(f"{part} of ddp") for part in ("constructor", "forward", "backward", "step")
    )
    for rank in range(ranks):
        there = 0 if rank == 0 else 1
        assert of(wire, rank, "op", "peer", "dtype", "bytes", "received", "line") == [
            ("all_gather", None, "int64", 8, 8 * ranks, constructor),  # how many parameters
            ("broadcast", 0, "int64", 96, 96 * there, constructor),  # their sizes and strides
            ("broadcast", 0, "float32", model, model * there, constructor),
            ("all_reduce", None, "float32", model, model, backward),
            ("broadcast", 0, "int32", 20, 20 * there, forward),  # the order in the buckets
            ("broadcast", 0, "int32", 4, 4 * there, forward),  # the buckets' sizes
            ("all_reduce", None, "float32", model, model, backward),
            ("all_reduce", None, "float32", model, model, backward),
        ]
    assert step not in set(wire["line"])


def test_ddp_in_buckets():
    """The first step is one bucket; then a bucket closes with the gradient that fills it."""
    sizes = (8, 8, 8, 8)
    layer = (8 * 8 + 8) * FLOAT
    wire = record_collectives(workers.ddp, sizes, 2, bucket_cap_mb=layer / 2**20)
    for rank in range(2):
        payloads = of(wire.query("op == 'all_reduce'"), rank, "bytes")
        assert payloads == [(3 * layer,), (layer,), (layer,), (layer,)]


def test_unused_parameters_cost_an_all_reduce_a_step():
    plain = record_collectives(workers.ddp, (6, 3), 3)
    careful = record_collectives(workers.ddp, (6, 3), 3, find_unused_parameters=True)
    dtypes = [of(wire.query("op == 'all_reduce'"), 0, "dtype") for wire in (plain, careful)]
    assert dtypes == [[("float32",)] * 3, [("float32",), ("int32",)] * 3]
    bitmap = careful.query("rank == 0 and dtype == 'int32'")
    assert set(bitmap["bytes"]) == {2 * 4}  # one int32 a parameter tensor


def test_ddp_broadcasts_buffers_before_each_forward():
    wire = record_collectives(workers.ddp_with_batch_norm)
    buffers = [(10 * FLOAT,), (8,)]  # mean and variance; then the int64 counter
    payloads = of(wire.query("op == 'broadcast' and dtype != 'int32'"), 0, "bytes")[2:]
    assert payloads == [(8,), *buffers, *buffers]


@pytest.mark.parametrize("ranks", [2, 3])
def test_what_fsdp_sends(ranks):
    wire = record_collectives(workers.fsdp, ranks=ranks)
    forward, backward = line_of("forward of fsdp"), line_of("backward of fsdp")
    rows = [-(-12 // ranks), -(-6 // ranks)]  # of the weight, rounded up to equal shards
    first, second = ((r * width + r) * FLOAT for r, width in zip(rows, (8, 12), strict=True))
    gather, scatter = "all_gather_into_tensor", "reduce_scatter_tensor"
    step = [
        (gather, first, first * ranks, forward),
        (gather, second, second * ranks, forward),
        (gather, second, second * ranks, backward),
        (gather, first, first * ranks, backward),
        (scatter, second * ranks, second, backward),
        (scatter, first * ranks, first, backward),
    ]
    for rank in range(ranks):
        *steps, barrier = of(wire, rank, "op", "bytes", "received", "line")
        assert sorted(steps) == sorted(step * 2) and barrier[0] == "barrier"
        order = [(op, sent) for op, sent, *_ in steps]
        assert order[:6] == order[6:] and order[:3] == [row[:2] for row in step[:3]]


def test_what_a_dtensor_sends_inside_an_operation_is_seen():
    wire = record_collectives(workers.tensor_parallel)
    for rank in range(2):
        assert of(wire, rank, "op", "shape", "bytes", "received") == [
            ("all_reduce", (4, 2), 32, 32),
            ("all_gather_into_tensor", (4, 3), 48, 96),
        ]


def test_threads_of_the_worker_are_seen():
    wire = record_collectives(workers.threads)
    expected = [((3,), line_of("in a thread")), ((5,), line_of("started here"))]
    assert of(wire, 0, "shape", "line") == of(wire, 1, "shape", "line") == expected


def test_processes_of_a_data_loader_go_on_working():
    results, wire = run_and_record(workers.data_workers)
    assert results == [[0, 1, 2, 3]] * 2 and wire.empty


def test_a_failed_call_that_is_caught_was_asked_for():
    results, wire = run_and_record(workers.caught)
    assert results == ["RuntimeError"] * 2
    assert of(wire, 1, "dtype") == [("float8_e5m2",), ("float32",)]


@pytest.mark.long
def test_a_compiled_worker_is_compiled_and_recorded(capsys):
    results, wire = run_and_record(workers.compiled)
    assert results == [1, 1]  # the recorder itself was not compiled
    assert of(wire, 0, "op", "bytes") == [("all_reduce", 12)]
    assert "Warning" not in capsys.readouterr().out


def test_sys_exit_zero_is_a_return_and_keeps_the_rows():
    results, wire = run_and_record(workers.leaves)
    assert results == [None, None] and list(wire["op"]) == ["all_reduce"] * 2


def test_a_failure_is_reported_as_by_launch():
    with pytest.raises(RankFailed, match="a key of the reader's own") as failure:
        record_collectives(workers.fails)
    assert failure.value.rank == 1
    assert "wire.py" not in str(failure.value)


def test_output_is_shown_and_no_torchrun_line(capsys):
    record_collectives(workers.prints)
    out = capsys.readouterr().out
    assert out.count("hello from the worker") == 2 and "torchrun" not in out


def test_a_result_that_cannot_travel_is_named():
    with pytest.raises(RankFailed, match=r"generator object unsendable"):
        record_collectives(workers.unsendable)


def test_refusals_are_about_the_readers_own_worker_and_arguments():
    with pytest.raises(LaunchRefused, match="lambda"):
        record_collectives(lambda: None)
    with pytest.raises(LaunchRefused, match=r"^Argument `b` cannot be sent"):
        record_collectives(workers.alone, 1, b=lambda: None)
