"""Chapter 10: every rung trains the same, and on a slow network the rungs differ as the page says.

Ratios on the emulated network; a bound is far from what a quiet machine shows.
"""

import statistics

import pytest
import torch
import torch.nn.functional as F

from ddp_workbook import RankFailed, launch, record_collectives, text_table
from ddp_workbook.chapters import make_it_fast, single_process
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, furthest
from ddp_workbook.experiments.make_it_fast import (
    item_cost,
    ladder,
    local_sgd,
    network_crossover,
    patterns,
    published,
    quiet_machine,
    sharded,
    step_breakdown,
)
from manyranks.network.links import Network, network
from manyranks.planning.hardware import GBIT
from manyranks.recording.traces import bounds
from tests.workers.make_it_fast_workers import one_sharded_step, steps_of_ddp

RUN = {"epochs": 1, "batch_size": 100, "width": 32, "depth": 2}  # the last batch has 97 rows


@pytest.fixture(scope="module")
def alone():
    return single_process.train(**RUN)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("rung", make_it_fast.RUNGS)
def test_every_rung_trains_as_one_process(rung, ranks, alone):
    """float16 has three digits; the others differ by rounding alone."""
    first, *others = launch(make_it_fast.train, rung=rung, ranks=ranks, **RUN)
    atol = 1e-2 if rung == "half_the_bytes" else 5e-6
    assert furthest(first.weights, alone.weights) < atol
    assert first.losses == pytest.approx(alone.losses, abs=atol)
    assert all(furthest(other.weights, first.weights) == 0 for other in others)


@pytest.mark.parametrize("rung", make_it_fast.RUNGS)
def test_every_rung_trains_batches_that_some_rank_has_nothing_of(rung):
    """The last batch has one row, so three of four ranks have none."""
    run = RUN | {"batch_size": 449}
    found = launch(make_it_fast.train, rung=rung, ranks=4, **run)[0]
    assert found.losses == pytest.approx(single_process.train(**run).losses, abs=1e-2)


def test_a_rung_that_is_not_there():
    with pytest.raises(RankFailed, match="rung is 'bukets', but it must be one of one_by_one"):
        launch(make_it_fast.train, rung="bukets", ranks=2)


@pytest.fixture(scope="module")
def rungs():
    """On a network that is slow enough for any machine: 75 ms for all, 10 ms a call."""
    return ladder.measure("800 Mbit/s, 5 ms", rounds=3)


@pytest.mark.push("claims of the pages that take long")
def test_fewer_calls_save_latency(rungs):
    """17 calls of 10 ms."""
    saved = rungs["exposed"]["one all-reduce a parameter"] - rungs["exposed"]["one flat vector"]
    assert saved > 17 * 10 / 2


@pytest.mark.push("claims of the pages that take long")
def test_small_buckets_hide_and_one_bucket_does_not():
    """Of 61 ms, and 23 were left when the page was written; a busy machine has three tries."""
    wire = ladder.all_reduce_ms("1 Gbit/s, 0.1 ms")
    most = {
        "DDP, buckets of 1 MiB": 0.8,
        "DDP, float16 on the wire": 0.5,
        "DDP, twice the samples": 0.8,
    }

    def what_is_not_so() -> list[str]:
        exposed = ladder.measure("1 Gbit/s, 0.1 ms", rounds=3)["exposed"]
        one = exposed["one flat vector"]
        numbered_timeline = [name for name, share in most.items() if exposed[name] >= share * one]
        return numbered_timeline if one > 0.5 * wire else [*numbered_timeline, "one flat vector"]

    assert [] in (what_is_not_so() for _ in range(3))


@pytest.mark.push("claims of the pages that take long")
def test_a_picture_goes_up_to_the_rung_that_was_asked_for(rungs):
    words = ladder.up_to(rungs, "buckets after backward").alt
    assert "one flat vector" in words and "DDP" not in words


def test_a_machine_that_is_too_busy_is_noticed():
    """The recorded run is possible; each sign of a busy machine alone is not."""
    quiet = ladder.recorded_table()
    assert not ladder.is_impossible(quiet)
    shorter, faster, slower = quiet.copy(), quiet.copy(), quiet.copy()
    shorter.loc["DDP, float16 on the wire", "compute"] /= 2  # than no communication
    faster.loc[ladder.FLAT, "exposed"] = 0.5 * ladder.all_reduce_ms()
    slower["exposed"] *= 2
    assert [ladder.is_impossible(one) for one in (shorter, faster, slower)] == [True] * 3


def test_the_titles_are_computed_and_a_recorded_run_says_so():
    table = ladder.recorded_table()
    first, buckets = (
        ladder.up_to(table, ladder.AFTER_BACKWARD[-1]),
        ladder.up_to(table, ladder.SMALL),
    )
    saved = table["exposed"][ladder.EACH] - table["exposed"][ladder.FLAT]
    assert f"One call ends {saved:.0f} ms sooner than 18" in first.alt
    assert f"{table['exposed'][ladder.SMALL]:.0f} ms in buckets of 1 MiB" in buckets.alt
    assert "too busy to measure" in first.alt and "2 cores" in first.alt
    del table.attrs["note"]
    assert "too busy" not in ladder.rungs_plot(table).alt


def test_impossible_steps_on_a_network_give_way_to_the_recorded_ones():
    quiet = quiet_machine.recorded()["network"]
    seconds = {name: [time / 1e3] for name, time in quiet["step"].items()}
    shown = network_crossover.steps_plot([seconds, seconds], quiet["network"], quiet["rows"])
    assert "too busy" not in shown.alt
    busy = seconds | {network_crossover.DDP: [0.5 * seconds[network_crossover.DDP][0]]}
    shown = network_crossover.steps_plot([busy, busy], quiet["network"], quiet["rows"])
    assert "too busy" in shown.alt
    assert f"DDP {quiet['step'][network_crossover.DDP]:.0f} ms" in shown.alt


def test_an_item_in_each_step_makes_the_gpu_wait():
    """By what Python needs to prepare a step, each time."""
    ends = [max(end for *_, end in item_cost.events(waits)) for waits in (False, True)]
    assert ends[1] - ends[0] == (item_cost.STEPS - 1) * item_cost.PREPARE_MS
    assert f"end after {ends[0]:g}, with .item() after {ends[1]:g}" in item_cost.timeline().alt


# When the network wins


def test_a_step_computed_by_hand():
    """100 MB/s: all layers travel in 11 ms, one of 148 kB in 1.5, the first in 0.5."""
    link = network(Network(1e8))
    sizes = network_crossover.layers()
    assert sum(sizes) == 1_095_208 and sizes[1:-1] == [148_224] * 7
    first, all_of_them = sizes[0] / 1e8, sum(sizes) / 1e8
    assert network_crossover.ddp_step(0.6, link) == pytest.approx(0.6 + first)
    assert network_crossover.ddp_step(0.0, link) == pytest.approx(all_of_them)
    assert network_crossover.fsdp_step(0.0, link, prefetch=False) == pytest.approx(
        1.5 * all_of_them
    )
    assert network_crossover.fsdp_step(0.6, link, prefetch=False) == pytest.approx(
        0.6 + 1.5 * all_of_them
    )
    ends = (first + first) / 2  # the first gather and the last scatter have nothing to hide behind
    assert network_crossover.fsdp_step(0.6, link, prefetch=True) == pytest.approx(
        0.6 + ends, rel=0.01
    )


def test_every_layer_but_the_output_has_a_bucket_of_its_own():
    found = record_collectives(steps_of_ddp, ranks=2)
    sent = found[(found["rank"] == 0) & (found["op"] == "all_reduce")]["bytes"]
    expected = [sum(network_crossover.layers()[-2:]), *network_crossover.layers()[-3::-1]]
    assert [*sent.tail(len(expected))] == expected


def test_what_the_lines_say():
    """From left to right no line climbs, and at both ends they are in the page's order."""
    table = network_crossover.computed_steps(0.01)
    assert (table.diff().dropna() <= 1e-9).all(axis=None)
    slow, fast = table.iloc[0], table.iloc[-1]
    assert (
        slow[network_crossover.HALF]
        < slow[network_crossover.DDP]
        < slow[network_crossover.FSDP_PREFETCH]
        <= slow[network_crossover.FSDP]
    )
    assert slow[network_crossover.FSDP_PREFETCH] / slow[network_crossover.DDP] == pytest.approx(
        1.5, rel=0.05
    )
    assert fast[network_crossover.DDP] == pytest.approx(10, rel=0.2)


@pytest.mark.push("claims of the pages that take long")
def test_ddp_runs_as_it_was_computed():
    """On 100 Mbit/s nothing else counts; a busy machine takes longer."""
    link = Network(0.1 * GBIT, network_crossover.LATENCY)
    found = launch(
        network_crossover.measure_steps, 100, ranks=2, network=network_crossover.network_spec(0.1)
    )
    times = ladder.table_of(found, network_crossover.ALONE).sum(axis=1)
    assert times[network_crossover.DDP] > 0.9e3 * network_crossover.ddp_step(0.0, link)
    assert times[network_crossover.DDP] < 3e3 * network_crossover.ddp_step(
        times[network_crossover.ALONE] / 1e3, link
    )
    assert times[network_crossover.DDP] > 2 * times[network_crossover.ONE_PROCESS]


# Where a step goes


@pytest.mark.push("claims of the pages that take long")
def test_the_sentence_and_the_lanes():
    found = step_breakdown.steps("100 Mbit/s, 0.5 ms", 128)
    assert found.parts["exposed"].sum() > 0.3 * found.parts["seconds"].sum()
    picture = step_breakdown.step_plot(found)
    assert found.describe() in picture.alt and "rank 1, network" in picture.alt


@pytest.mark.push("claims of the pages that take long")
def test_a_players_network_is_ordered_for_its_ranks():
    """And the worker is not told."""
    slow = step_breakdown.play_buckets()
    slow.controls["cap"].value, slow.controls["network"].value = 25, step_breakdown.BUCKET_LINKS[0]
    slow.wait()
    wire = network(step_breakdown.BUCKET_LINKS[0]).seconds("all_reduce", 1.8 * 2**20, [0, 1], 2)
    assert float(slow.answer.words.split("exposed, ")[1].split()[0]) > 0.5e3 * wire


# Eight patterns


@pytest.fixture(scope="module", params=range(1, 9))
def numbered_timeline(request):
    """A pattern, by its number, and its timeline."""
    return request.param, patterns.pattern_timeline(request.param)


def test_a_pattern_shows_what_the_page_says(numbered_timeline):
    """By the parts that it is about, which no load of this machine makes smaller."""
    number, timeline = numbered_timeline
    mean = timeline.parts.groupby("rank").mean(numeric_only=True) * 1e3
    network = 1e3 * network_seconds(patterns.PATTERNS[number - 1])
    calls = timeline.traces[0].calls[-10:]
    if number == 1:
        assert (mean["compute"] > mean["exposed"]).all()
    if number == 2:  # 53 ms, and all of it after backward
        assert (mean["exposed"] > 0.5 * network).all() and len(own_calls(timeline)) == 1
    if number == 3:
        assert len(own_calls(timeline)) == 10
        assert statistics.median(calls[:, 1] - calls[:, 0]) > 0.009
        assert (mean["exposed"] > 20).any()
    if number == 4:
        assert mean["loading"][1] > 0.9e3 * patterns.SLOW > 2 * mean["loading"][0]
    if number == 5:
        assert mean["compute"][1] > 2 * mean["compute"][0]
    if number == 6:
        assert (mean["loading"] > 0.9e3 * patterns.SLOW).all()
        assert "is loading" in patterns.summary(timeline)
    if number == 7:  # one of DDP's, and four
        assert len(own_calls(timeline)) == 5 and (mean["exposed"] > 30).all()
    if number == 8:
        other = timeline.parts.query("rank == 0").set_index("step")["other"]
        assert (
            other[2] > 0.9 * patterns.DISK_WRITE_S
            and other[2] - other.min() > patterns.DISK_WRITE_S / 2
        )


def own_calls(found):
    """When the calls of rank 0's second step began."""
    start, end = bounds(found.traces[0])[1]
    entered = found.traces[0].calls[:, 0]
    return entered[(entered > start) & (entered < end)]


def network_seconds(pattern):
    """What all gradients need on its network, in one call."""
    size = 4 * sum(one.numel() for one in DigitsMLP(patterns.WIDTH, patterns.DEPTH).parameters())
    return network(pattern.network).seconds("all_reduce", size, [0, 1], 2)


def test_a_patterns_picture_has_its_name_and_the_other_has_not(numbered_timeline):
    number, found = numbered_timeline
    name = patterns.PATTERNS[number - 1].name
    assert name in patterns.pattern_plot(found, number).alt
    steps = patterns.PATTERNS[number - 1].steps
    assert name not in (alt := found.lanes(*steps).alt)
    assert ("Steps 1 to 3" if number == 8 else "Step 2") in alt


def test_the_rows_of_a_rank(numbered_timeline):
    """The loop's, gloo's and the network's."""
    table = patterns.rows(numbered_timeline[1]).set_index("row")["most of them"]
    assert "network:" in table["network 1"]
    assert "aten::" in table.iloc[0]
    assert table.iloc[1:].str.contains("gloo:all_reduce").any()


# What was published


def test_mfu_with_attention_is_what_was_published():
    """Within two points, which is what rounding the number of parameters does."""
    for name, size, *shape, _, speed, stated in published.TRAININGS:
        found = 100 * published.flops_per_token(size, *shape) * speed / published.PEAK
        assert found == pytest.approx(stated, abs=2), name
    shown = published.trainings()
    apart = shown["MFU with attention, %"] - shown["published MFU, %"]
    assert set(apart.abs()) == {1}  # "by a point"
    assert shown["MFU by 6 P, %"].iloc[-1] == 26
    assert "torch.compile" in str(text_table(published.gains())._repr_html_())


@pytest.fixture(scope="module")
def calls():
    """The calls of rank 0 in one step of each way of the further page, by op and group."""

    def bytes_by_op(shape, way):
        wire = record_collectives(one_sharded_step, shape, way, ranks=4)
        of_rank = wire[wire["rank"] == 0].groupby(["op", "group"])["bytes"]
        return {key: (len(rows), rows.sum()) for key, rows in of_rank}

    return bytes_by_op


@pytest.mark.push("claims of the pages that take long")
@pytest.mark.parametrize(("way", "gathers"), [*zip(sharded.WAYS, (18, 18, 18, 9), strict=True)])
def test_keeping_the_weights_saves_the_second_gather(way, gathers, calls):
    found = calls((4,), sharded.WAYS[way])
    assert {op: number for (op, _), (number, _) in found.items()} == {
        "all_gather_into_tensor": gathers,
        "reduce_scatter_tensor": 9,
    }


@pytest.mark.push("claims of the pages that take long")
def test_hsdp_crosses_with_its_shards_alone(calls):
    """Each rank sends 0.96 MB across; FSDP over all sends three quarters of 1.9 MB, three times."""
    found = calls((2, 2), {})
    across = [key for key in found if key[1] == "ranks 0,2"]
    assert across == [("all_reduce", "ranks 0,2")]
    assert found[across[0]][1] == pytest.approx(0.96e6, rel=0.01)
    assert pytest.approx(4.3, abs=0.05) == 3 * 3 / 4 * 2 * 0.96


@pytest.mark.push("claims of the pages that take long")
def test_sharded_steps_wait_less_with_each_way():
    """A gather of all layers takes 318 ms here, of forward and of backward the same.

    A busy machine has three tries.
    """
    gathers = sharded.communication_table("100 Mbit/s, 2 ms")["ms"]["FSDP, all-gather in backward"]

    def waits_less() -> bool:
        found = sharded.measure("100 Mbit/s, 2 ms", rounds=1).sum(axis=1)
        assert found["one by one"] > 3 * gathers
        return found["and kept whole"] < found["and one ahead"] - gathers / 2

    assert any(waits_less() for _ in range(3))


@pytest.mark.push("claims of the pages that take long")
def test_meeting_after_every_step_is_one_process_on_the_whole_batch():
    """With plain SGD, the mean of the weights is a step with the mean of the gradients."""
    found = launch(local_sgd.train, 1, ranks=4)[0]
    assert [step for step, _, _ in found] == [*range(4, local_sgd.STEPS + 1, 4)]
    assert found[-1][2] == pytest.approx(loss_of_one_process(), abs=1e-4)


def loss_of_one_process() -> float:
    digits = DigitsDataset()
    torch.manual_seed(0)
    model = DigitsMLP(local_sgd.WIDTH, local_sgd.DEPTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=local_sgd.RATE)
    for first in range(0, local_sgd.STEPS * local_sgd.ROWS, local_sgd.ROWS):
        # Row r of rank k is row k + 4 r of the table; a rank begins again after its last row.
        kept = [torch.arange(rank, len(digits), 4) for rank in range(4)]
        picked = [rows[(torch.arange(local_sgd.ROWS) + first) % len(rows)] for rows in kept]
        images, labels = digits[torch.cat(picked)]
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    with torch.no_grad():
        return F.cross_entropy(model(digits.images), digits.labels).item()


@pytest.mark.push("claims of the pages that take long")
def test_fewer_meetings_cost_little_with_all_digits_and_much_with_a_rank_s_own():
    def last(data: str, outer: str = local_sgd.MEAN) -> float:
        return local_sgd.train_both_ways(16, data, outer).iloc[-1]["every 16 steps"]

    often = local_sgd.train_both_ways(16, local_sgd.MIXED, local_sgd.MEAN).iloc[-1][
        "met after every step"
    ]
    assert last(local_sgd.MIXED) < 1.1 * often
    assert last(local_sgd.SORTED) > 2 * often
    assert last(local_sgd.SORTED, local_sgd.NESTEROV) < 0.7 * last(local_sgd.SORTED)


@pytest.mark.push("claims of the pages that take long")
def test_torch_s_averager_meets_as_outer_does():
    found = local_sgd.compare_with_pytorch()
    assert list(found.index) == [16, 32, 48, 64]
    assert (found["Outer"] == found["PeriodicModelAverager"]).all()


def test_what_the_page_says_of_the_wire():
    assert local_sgd.sync_seconds() == pytest.approx(0.047, abs=0.0005)
