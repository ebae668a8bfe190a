"""A network to order: what its words mean, what calls take on it, and that values stay right."""

import json
import os

import pytest

from ddp_workbook import launch, record_collectives
from manyranks import errors
from manyranks.network import launch_network
from manyranks.network.links import PRESETS, Network, network
from tests.workers import network_workers as workers
from tools.set_up import ROOT

SLOW = "100 Mbit/s, 2 ms"
# Where a figure was seen to be within 5 %, a busy machine may take this many times as long.
BUSY = 10


# The order


@pytest.mark.parametrize(
    ("words", "rate", "latency"),
    [
        ("10 Gbit/s, 20 µs", 1.25e9, 20e-6),
        ("10 Gb/s, 20 us", 1.25e9, 20e-6),
        ("100Mbps,0.5ms", 12.5e6, 0.5e-3),
        ("1.25 GB/s", 1.25e9, 0),
        ("8e3 bit/s, 0 s", 1000, 0),
        ("NVLink 4", 450e9, 3.4e-6),
        ("Ethernet 1G", 125e6, 14e-6),
    ],
)
def test_a_link_in_words(words, rate, latency):
    """With a rate in bits or bytes, a latency, or the name of a link of the planner."""
    result = network(words)
    assert (result.bytes_per_second, result.latency) == pytest.approx((rate, latency))
    assert (result.nodes, result.scale) == (1, 1)


def test_nodes_and_a_larger_model_in_words():
    """Each part that is not the default."""
    result = network("Ethernet 10G; 2 nodes; inside NVLink 4; scale 1000")
    assert result == Network(1.25e9, 14e-6, 2, 450e9, PRESETS["NVLink 4"].latency, 1000)
    assert network(result) is result and Network.from_json(result.to_json()) == result
    assert Network.from_json(network("1 Gbit/s").to_json()) == network("1 Gbit/s")  # infinity, too


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("0 Gbit/s", "must be more than zero"),
        ("-1 Gbit/s, 1 ms", "must be more than zero"),
        ("1 Gbit/s, -1 ms", "must be more than zero"),
        ("10 Gbot/s", "is no link"),
        ("fast", "is no link"),
        ("", "is no link"),
        ("1.2.3 Gbit/s", "no number that can be read"),
        ("1 Gbit/s, 20 parsecs", "is no latency"),
        ("Ethernet 10", "Did you mean 'Ethernet 10G'?"),
        ("1 Gbit/s; 2 racks", "is none of"),
        ("1 Gbit/s; 0 nodes", "must be more than zero"),
        ("1 Gbit/s; scale 0", "must be more than zero"),
        (10**9, "is no network"),
        ("1 Gbit/s; 3 nodes", "multiple of the nodes"),
        ("1 Gbit/s; 8 nodes", "multiple of the nodes"),
    ],
)
def test_an_order_that_cannot_be_met_is_refused(order, said):
    """Before anything starts."""
    with pytest.raises(errors.LaunchRefused, match=said.replace("?", r"\?")):
        launch(workers.says_nothing, ranks=4, network=order)


def test_with_a_network_the_ranks_see_no_gpu(monkeypatch):
    """It is around gloo."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert launch(workers.visible_gpus, ranks=2, network="1 Gbit/s") == ["", ""]


def test_every_preset_has_a_source():
    """Which names a document and a year."""
    assert all(link.source and any(c.isdigit() for c in link.source) for link in PRESETS.values())


# Seconds by the formula


def test_what_a_ring_takes():
    """For 4 ranks at 1 MB/s and 1 ms, 4 MB."""
    slow, everybody = Network(1e6, 1e-3), [0, 1, 2, 3]

    def seconds(op: str) -> float:
        return slow.seconds(op, 4_000_000, everybody, 4)

    assert seconds("all_reduce") == pytest.approx(6 * 1e-3 + 6)
    assert seconds("all_gather") == seconds("reduce_scatter") == pytest.approx(3 * 1e-3 + 3)
    assert seconds("broadcast") == seconds("reduce") == pytest.approx(3 * 1e-3 + 4)
    assert seconds("gather") == seconds("scatter") == pytest.approx(3 * 1e-3 + 12)
    assert seconds("barrier") == pytest.approx(6 * 1e-3)
    assert slow.seconds("send", 1_000_000, [0, 3], 4) == pytest.approx(1e-3 + 1)
    assert slow.seconds("all_reduce", 4_000_000, [0], 4) == 0


def test_a_larger_model_is_more_bytes():
    """And no more messages."""
    assert Network(1e6, 1e-3, scale=1000).seconds("send", 1000, [0, 1], 2) == pytest.approx(1.001)


def test_two_nodes_have_two_speeds():
    """A ring inside a node is fast; one over both is as fast as its ranks' shares of the port."""
    result = network("1 MB/s, 10 ms; 2 nodes; inside 1 GB/s, 1 ms")
    assert result.seconds("all_gather", 10**6, [0, 1], 4) == pytest.approx(1e-3 + 0.5e-3)
    assert result.seconds("all_gather", 10**6, [0, 2], 4) == pytest.approx(10e-3 + 1.0)
    assert result.seconds("all_gather", 10**6, [0, 1, 2, 3], 4) == pytest.approx(12e-3 + 0.75)


def test_infiniband_has_a_port_for_each_rank():
    """So a ring of one rank a node is not slower for its neighbours, and one of all is faster."""
    result = network("InfiniBand HDR; 2 nodes; inside NVLink 3")
    size, once = 10**9, 0.5 * 10**9 / PRESETS["InfiniBand HDR"].bytes_per_second
    assert result.seconds("all_gather", size, [0, 2], 4) == pytest.approx(once, rel=1e-2)
    all_four = result.seconds("all_gather", size, [0, 1, 2, 3], 4)
    assert all_four == pytest.approx(1.5 * once / 2, rel=1e-2)


def test_steps_on_shaped_links_took_as_long():
    """Within 4 %, as the README says of the recorded ones."""
    steps = json.loads((ROOT / "data/make_it_fast/shaped_links.json").read_text())["steps"]
    assert {(row["Mbit/s"], row["bucket_cap_mb"]) for row in steps} == {
        (mbit, cap) for mbit in (100, 300, 1000) for cap in (1, 4, 25)
    }
    assert max(abs(row["ordered"] / row["shaped"] - 1) for row in steps) < 0.04


# On real ranks


@pytest.mark.parametrize(
    ("size", "order"),
    [(1_000, SLOW), (100_000, SLOW), (1_000_000, SLOW), (64_000_000, "1 Gbit/s, 1 ms")],
)
def test_a_message_takes_what_the_formula_says(size, order):
    """Never less."""
    expected = network(order).seconds("all_reduce", size, [0, 1], 2)
    for seconds in launch(workers.fastest_all_reduce, size, ranks=2, network=order):
        assert expected <= seconds < BUSY * expected


def test_every_call_is_delivered_right_and_late():
    """All that torch.distributed has on gloo: the values of a launch without a network."""
    order = network("10 Mbit/s, 5 ms")
    plain = launch(workers.every_call, ranks=4)
    result = launch(workers.every_call, ranks=4, network=order)
    for rank_result, other in zip(plain, result, strict=True):
        assert {name: held for name, (_, held) in rank_result.items()} == {
            name: held for name, (_, held) in other.items()
        }
        for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all_single"):
            size = 4000 if op == "all_reduce" else 16_000
            assert other[op][0] >= order.seconds(op.removesuffix("_single"), size, [0, 1, 2, 3], 4)
    for op in ("send and recv", "around the ring"):
        # A rank that comes late finds what was sent before; the first one waits for all of it.
        longest = max(rank_result[op][0] for rank_result in result)
        assert longest >= order.seconds("send", 4000, [0, 1], 4)


def test_around_the_ring_all_send_at_once():
    """A port sends and receives at the same time."""
    order = network("1 Mbit/s, 5 ms")  # 37 ms a message; one after the other would be 148
    one_way = order.seconds("send", 4000, [0, 1], 4)
    result = launch(workers.every_call, ranks=4, network=order)
    assert min(one["around the ring"][0] for one in result) < 2 * one_way


def test_a_call_begins_when_the_last_rank_has_come():
    """So a late rank costs all others its delay, and the ring's time on top."""
    expected = network(SLOW).seconds("all_reduce", 100_000, [0, 1, 2], 3)
    *others, late = launch(workers.a_late_rank, 0.2, ranks=3, network=SLOW)
    assert expected <= late < BUSY * expected
    for seconds in others:  # from the barrier, which they may have left a little later
        assert expected / 2 < seconds < BUSY * expected


def test_calls_of_two_groups_queue_for_the_port():
    """There is one, and a call on its way is not done."""
    expected = network(SLOW).seconds("all_reduce", 100_000, [0, 1], 2)
    for alone, both, early in launch(workers.two_groups_at_once, ranks=2, network=SLOW):
        assert alone >= expected and both >= 2 * expected and not early


@pytest.mark.parametrize("kind", ["ddp", "zero", "fsdp"])
def test_a_training_ends_with_the_same_weights(kind):
    """In every bit."""
    plain = launch(workers.parameter_sums, kind, ranks=2)
    assert launch(workers.parameter_sums, kind, ranks=2, network="1 Gbit/s, 0.1 ms") == plain


@pytest.mark.push("claims of the pages that take long")
def test_small_buckets_hide_what_one_bucket_shows():
    """17 MB at 1 Gbit/s: 137 ms on the wire, and backward takes longer than that."""
    wire = network("1 Gbit/s").seconds("all_reduce", 16_900_000, [0, 1], 2)
    small, whole = (
        min(launch(workers.exposed_seconds, cap, ranks=2, network="1 Gbit/s")) for cap in (1, 100)
    )
    assert whole > 0.9 * wire and small < 0.5 * wire


@pytest.mark.push("other trainings on a slow network")
def test_the_recorder_sees_the_same_calls():
    """It stands before the network, as before gloo."""
    plain = record_collectives(workers.parameter_sums, "ddp", ranks=2)
    result = record_collectives(workers.parameter_sums, "ddp", ranks=2, network="1 Gbit/s")
    assert result.equals(plain)


def test_a_failing_rank_is_named_as_without_a_network():
    """And the hang of the others is no error of theirs."""
    with pytest.raises(errors.RankFailed, match=r"Rank 1 \(of 3\) failed: ValueError: no more"):
        launch(workers.leaves_early, ranks=3, network=SLOW)


def test_a_hang_is_described_as_without_a_network():
    """Which rank did not enter, and where the others wait."""
    with pytest.raises(errors.RanksHung) as plain:
        launch(workers.skips_all_reduce, ranks=2, timeout=2)
    with pytest.raises(errors.RanksHung) as result:
        launch(workers.skips_all_reduce, ranks=2, timeout=2, network=SLOW)
    assert str(result.value) == str(plain.value)


def test_a_worker_that_never_communicates(tmp_path, monkeypatch):
    """Runs, and nothing is left over."""
    monkeypatch.setattr(launch_network, "SHARED_MEMORY", tmp_path)
    assert launch(workers.says_nothing, ranks=2, network="1 kbit/s, 1 s") == [7, 7]
    launch(workers.parameter_sums, "ddp", ranks=2, network="1 Gbit/s")
    assert not os.listdir(tmp_path)
