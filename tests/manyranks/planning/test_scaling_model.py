"""The model of a step on N ranks: its parts against formulas, its fit against known numbers."""

from math import isinf

import numpy as np
import pandas as pd
import pytest

from ddp_workbook.experiments.many_machines import costs, projection
from manyranks.planning.hardware import INTER_NODE_LINKS, INTRA_NODE_LINKS, find_by_name
from manyranks.planning.scaling import (
    Job,
    Ring,
    TwoLevels,
    bucket_timings,
    fit_compute,
    fit_ring,
    least_squares,
    predict_step,
    strong_scaling,
    turning_point,
    weak_scaling,
)
from manyranks.planning.speed import Cluster
from tests.shaped_links import Links, fit_links

RING = Ring(alpha=20e-6, beta=1e-9)
JOB = Job(fixed=2e-3, per_row=50e-6, buckets=(1e6, 4e6, 3e6), update=1e-3)
FREE = Ring(0.0, 0.0)


def test_a_ring_sends_what_patarasuk_and_yuan_say():
    """2 (N - 1) messages of S / N bytes; one rank sends nothing."""
    assert RING.seconds(4, 8e6) == pytest.approx(6 * 20e-6 + 6 / 4 * 8e6 * 1e-9)
    assert RING.seconds(1, 8e6) == 0


def test_a_step_of_one_rank_is_compute_and_update():
    """Whatever the network."""
    for network in (RING, Ring(1.0, 1.0)):
        step = predict_step(JOB, network, 1, 100)
        assert step.seconds == pytest.approx(2e-3 + 100 * 50e-6 + 1e-3)
        assert step.communication == step.exposed == 0


def test_a_free_network_scales_without_loss():
    """Weak scaling has efficiency 1; strong scaling loses what is fixed."""
    assert np.allclose(weak_scaling(JOB, FREE, 100, [1, 2, 64])["efficiency"], 1)
    strong = strong_scaling(JOB, FREE, 6400, [1, 2, 64])
    fixed, rows = 3e-3, 6400 * 50e-6
    expected = [(fixed + rows) / (fixed + rows / n) for n in (1, 2, 64)]
    assert np.allclose(strong["speed_up"], expected)


def test_the_first_bucket_leaves_while_backward_runs():
    """A third of the compute is forward; then gradients come at an even rate."""
    compute = JOB.compute(2, 100)
    first, second, third = bucket_timings(JOB, RING, 2, 100)
    assert first.ready == first.start == pytest.approx(compute * (1 / 3 + 2 / 3 * 1 / 8))
    assert second.start == max(second.ready, first.end)
    assert third.ready == pytest.approx(compute)


def test_all_reduces_take_turns():
    """On a slow network each one waits for the one before, and the last ends the step."""
    slow = Ring(0.0, 1e-6)
    timings = bucket_timings(JOB, slow, 2, 100)
    assert [timing.start for timing in timings[1:]] == [timing.end for timing in timings[:-1]]
    step = predict_step(JOB, slow, 2, 100)
    assert step.communication == pytest.approx(8.0)  # bytes times beta times 2 (N - 1) / N = 1
    assert step.seconds == pytest.approx(timings[-1].end + JOB.update)
    assert step.exposed == pytest.approx(timings[-1].end - step.compute)


def test_a_fast_network_is_hidden_but_for_the_last_bucket():
    """The last gradients are ready when backward ends: nothing hides their all-reduce."""
    step = predict_step(JOB, RING, 2, 2000)
    assert step.exposed == pytest.approx(RING.seconds(2, 3e6))


def test_ranks_that_share_cores_take_turns():
    """4 ranks on 2 cores compute twice as long; 2 ranks do not."""
    shared = Job(2e-3, 50e-6, (1e6,), update=1e-3, cores=2)
    assert [shared.compute(n, 100) / JOB.compute(n, 100) for n in (1, 2, 4)] == [1, 1, 2]
    assert predict_step(shared, FREE, 4, 100).update == pytest.approx(2e-3)


def test_only_spare_cores_send_while_others_compute():
    """2 ranks on 4 cores overlap, 3 ranks a third, 4 ranks not at all."""
    shared = Job(2e-3, 50e-6, (4e6, 4e6), cores=4)
    parts = {n: predict_step(shared, RING, n, 2000) for n in (2, 3, 4)}
    hidden = {n: 1 - step.exposed / step.communication for n, step in parts.items()}
    assert hidden == pytest.approx({2: 0.5, 3: 0.5 / 3, 4: 0})  # the first of two buckets
    assert parts[2].seconds == predict_step(Job(2e-3, 50e-6, (4e6, 4e6)), RING, 2, 2000).seconds


def test_one_bucket_hides_nothing():
    """Then a step is the formula of the page."""
    job = Job(2e-3, 50e-6, (8e6,))
    step = predict_step(job, RING, 8, 100)
    assert step.seconds == pytest.approx(2e-3 + 5e-3 + 14 * 20e-6 + 14 / 8 * 8e-3)


def test_the_table_adds_up():
    """Batch, samples and speed-up of both ways to scale."""
    weak = weak_scaling(JOB, RING, 100, [1, 8])
    assert list(weak["batch"]) == [100, 800] and list(weak["rows"]) == [100, 100]
    strong = strong_scaling(JOB, RING, 800, [1, 8])
    assert list(strong["batch"]) == [800, 800] and list(strong["rows"]) == [800, 100]
    for table in (weak, strong):
        assert table["speed_up"].iloc[0] == table["efficiency"].iloc[0] == pytest.approx(1)
        assert np.allclose(table["samples_per_second"], table["batch"] / table["seconds"])
    assert weak["seconds"].iloc[1] == strong["seconds"].iloc[1]  # the same 8 ranks, the same rows


@pytest.mark.parametrize("batch", [2000, 30_000])
def test_at_the_turning_point_a_step_is_shortest(batch):
    """The formula against trying every number of ranks, without overlap: a single bucket."""
    job = Job(2e-3, 50e-6, (8e6,))
    steps = [predict_step(job, RING, n, batch / n).seconds for n in range(2, 1000)]
    assert abs(turning_point(job, RING, batch) - (2 + int(np.argmin(steps)))) <= 0.5


@pytest.mark.parametrize("batch", [500, 2000, 30_000])
@pytest.mark.parametrize("ring", [RING, Ring(1e-6, 4e-9), Ring(200e-6, 0.01e-9)])
def test_with_overlap_it_is_shortest_there_as_well(batch, ring):
    """Up to how well 20 buckets fill the time behind which they hide."""
    job = Job(0.0, 50e-6, (0.4e6,) * 20)
    steps = [predict_step(job, ring, n, batch / n).seconds for n in range(1, 2000)]
    there = round(turning_point(job, ring, batch))
    assert steps[there - 1] < 1.05 * min(steps)
    best = 1 + int(np.argmin(steps))
    assert 0.7 * best <= there <= 1.4 * best


def test_a_second_rank_need_not_pay():
    """Then the turning point is one rank; if messages are free, there is no turning point."""
    job = Job(2e-3, 50e-6, (8e6,))
    assert turning_point(job, RING, 100) == pytest.approx(1)
    assert predict_step(job, RING, 2, 50).seconds > predict_step(job, RING, 1, 100).seconds
    assert isinf(turning_point(job, Ring(0.0, 1e-9), 1000))


# Two levels

H100 = Cluster(
    find_by_name(INTRA_NODE_LINKS, "NVLink 4"), find_by_name(INTER_NODE_LINKS, "InfiniBand NDR")
)


def test_a_node_is_faster_than_two():
    """Inside a node NVLink carries an all-reduce; the first link between nodes slows all of it."""
    network = TwoLevels(H100)
    assert network.seconds(1, 1e9) == 0
    inside, between = network.seconds(8, 1e9), network.seconds(16, 1e9)
    assert inside < between
    assert network.seconds(64, 1e9) < 1.2 * between  # bytes a rank sends hardly grow from here


def test_small_messages_take_the_tree_and_large_ones_the_ring():
    """The ring's latency grows with N, the tree's with log N; a tree has less bandwidth."""
    best, ring, tree = (TwoLevels(H100, name) for name in ("best", "ring", "tree"))
    assert tree.seconds(1024, 1e6) < ring.seconds(1024, 1e6) / 5
    assert ring.seconds(16, 1e9) < tree.seconds(16, 1e9)
    for ranks in (2, 8, 16, 1024):
        for size in (1e3, 25e6, 1e9):
            both = ring.seconds(ranks, size), tree.seconds(ranks, size)
            assert best.seconds(ranks, size) == min(both)


def test_doubling_the_ranks_doubles_the_latency_of_a_ring():
    """And adds a constant to that of a tree."""
    ring, tree = (
        [TwoLevels(H100, name).seconds(n, 8) for n in (128, 256, 512, 1024)]
        for name in ("ring", "tree")
    )
    assert ring[3] / ring[2] == pytest.approx(2, rel=0.02)
    assert np.allclose(np.diff(tree), 2 * 8.5e-6)


# Fitting


def all_reduces(network, **columns) -> pd.DataFrame:
    """Timings that follow a formula exactly."""
    rows = [(n, size) for n in (2, 3, 4) for size in (64, 10_000, 4e6)]
    frame = pd.DataFrame(rows, columns=["ranks", "bytes"]).assign(**columns)
    return frame.assign(seconds=[network.seconds(n, s) for n, s in rows])


def test_a_fit_finds_alpha_and_beta():
    """From exact timings all digits; from noisy ones, nearly."""
    exact = all_reduces(RING)
    ring, residuals = fit_ring(exact)
    assert (ring.alpha, ring.beta) == pytest.approx((RING.alpha, RING.beta))
    assert np.allclose(residuals, 0)
    noise = np.random.default_rng(0).uniform(0.95, 1.05, len(exact))
    ring, residuals = fit_ring(exact.assign(seconds=exact["seconds"] * noise))
    assert (ring.alpha, ring.beta) == pytest.approx((RING.alpha, RING.beta), rel=0.05)
    assert 0.01 < np.abs(residuals).max() < 0.1


def test_host_and_wire_are_told_apart():
    """From links of two bandwidths; the third is predicted."""
    links = Links(alpha=1e-4, host=2e-9, overhead=1.05)
    timings = pd.concat(all_reduces(links.at(rate), bytes_per_second=rate) for rate in (5e6, 100e6))
    coefficients, _ = fit_links(timings)
    assert (coefficients.alpha, coefficients.host, coefficients.overhead) == pytest.approx(
        (1e-4, 2e-9, 1.05)
    )
    assert coefficients.at(20e6).beta == pytest.approx(2e-9 + 1.05 / 20e6)


def test_compute_is_fitted_on_shared_cores_as_well():
    """The crowding is known, so it does not end up in the coefficients."""
    job = Job(2e-3, 50e-6, (1,), cores=2)
    rows = [(n, rows) for n in (1, 2, 3, 4) for rows in (32, 256)]
    timings = pd.DataFrame(rows, columns=["ranks", "rows"])
    coefficients, _ = fit_compute(
        timings.assign(seconds=[job.compute(*row) for row in rows]), cores=2
    )
    assert coefficients == pytest.approx({"fixed": 2e-3, "per_row": 50e-6})


def test_alpha_and_beta_are_those_of_ranks_with_cores_of_their_own():
    """4 ranks on 2 cores send half as fast; the fit takes that out."""
    timings = all_reduces(RING)
    timings["seconds"] *= np.maximum(1, timings["ranks"] / 2)
    ring, residuals = fit_ring(timings, cores=2)
    assert (ring.alpha, ring.beta) == pytest.approx((RING.alpha, RING.beta))
    assert np.allclose(residuals, 0)


def test_no_coefficient_is_negative():
    """A line that would start below zero starts at zero, and fits what is left."""
    fit = least_squares({"alpha": [1, 1], "beta": [1, 10]}, [0.5, 10])
    assert fit.coefficients["alpha"] == 0
    assert fit.coefficients["beta"] == pytest.approx(0.6, rel=0.1)  # relative errors
    assert fit.residuals == pytest.approx(
        np.array([0.5, 10]) / fit.coefficients["beta"] / [1, 10] - 1
    )


def test_measurements_that_cannot_tell_are_refused():
    """One size on one number of ranks has a single line too many."""
    with pytest.raises(ValueError, match="cannot tell alpha, beta apart"):
        fit_ring(all_reduces(RING).iloc[[0, 0]])


@pytest.mark.parametrize("ranks, buckets", [(0, (1e6,)), (2, ())])
def test_nonsense_is_refused(ranks, buckets):
    """No ranks, or nothing to send."""
    with pytest.raises(ValueError, match="nothing to predict"):
        predict_step(Job(1e-3, 1e-6, buckets), RING, ranks, 10)


# The page: its measurements, its numbers, its pictures

SMALL = costs.Workload(width=64, depth=2, bucket_cap_mb=0.01, rows=(8, 64), sizes=(64, 65_536))


@pytest.fixture(scope="module")
def measured() -> pd.DataFrame:
    """Timings of a small model on 1 and 2 ranks."""
    return costs.measure(ranks=[1, 2], work=SMALL, rounds=2)


def test_every_part_is_measured_at_every_size(measured):
    """One line each, the fastest of the rounds of the slowest rank."""
    amounts = {"compute": (8, 64), "step": (8, 64), "update": (0,), "all-reduce": (64, 65_536)}
    expected = {(n, part, size) for n in (1, 2) for part, of in amounts.items() for size in of}
    keys = measured[["ranks", "part", "amount"]].itertuples(index=False, name=None)
    assert sorted(keys) == sorted(expected)
    assert (measured["seconds"] > 0).all()


def test_the_model_of_this_machine_predicts_what_was_measured(measured):
    """No part is negative, and the table has a line for each whole step."""
    model = costs.fit(measured, SMALL)
    job, ring = model.job, model.ring
    assert min(job.fixed, job.per_row, job.update, ring.alpha, ring.beta) >= 0
    assert sum(job.buckets) == 4 * sum(p.numel() for p in SMALL.model().parameters())
    table = costs.compare_steps(measured, model)
    assert table.index.tolist() == [(1, 8), (1, 64), (2, 8), (2, 64)]
    assert (table["ratio"] > 0).all()
    assert set(costs.worst_residuals(model).index) == {"compute", "all-reduce"}
    assert "ns a byte" in repr(model)
    assert "measure again" in repr(model._replace(ring=Ring(1e-6, 0.0)))
    assert "busy" not in repr(model._replace(waited=0.05))
    assert "waited for a core 45% of the time" in repr(model._replace(waited=0.45))


def test_no_round_begins_after_the_budget():
    """A busy machine gets fewer rounds, and a page does not take longer for it."""
    results = costs.run_ranks(costs.Call(costs.timings_of_rank, (SMALL, 50, (), 0.0), {}), 2)
    assert [{timing.round for timing in of_rank} for of_rank in results] == [{1}, {1}]


def test_the_slowest_rank_counts_from_the_first_ones_begin():
    """Ranks that share a core do not begin together."""
    of_ranks = [
        [costs.Timing("step", 8, 1, begun=10.0, seconds=1.0, waited=0.0)],
        [costs.Timing("step", 8, 1, begun=10.5, seconds=1.0, waited=0.5)],
    ]
    (line,) = costs.slowest_ranks(of_ranks).itertuples(index=False)
    assert (line.ranks, line.seconds, line.waited) == (2, 1.5, 0.5)


def test_a_faster_link_shortens_the_step_and_nothing_else():
    """The same compute, on machines of their own."""
    model = costs.FittedModel(Job(1e-3, 50e-6, (1e6,) * 4, cores=2), RING, pd.DataFrame())
    steps = costs.own_machines(model, {"slow": 1e9, "fast": 10e9}, ranks=4, rows=128)
    (slow, slow_sent), (fast, fast_sent) = steps["slow"], steps["fast"]
    assert slow.compute == fast.compute == pytest.approx(1e-3 + 128 * 50e-6)  # no shared cores
    assert slow.seconds > fast.seconds
    wire = 6 / 4 * 1e6 * (8 / 1e9 - 8 / 10e9)
    assert slow_sent[0].end - fast_sent[0].end == pytest.approx(wire)


def test_a_slow_ethernet_costs_more_than_a_fast_one():
    """A line for each usual rate; the compute is the same, and what comes on top shrinks."""
    model = costs.FittedModel(Job(1e-3, 50e-6, (1e6,) * 4, cores=2), RING, pd.DataFrame())
    table = costs.by_ethernet(model, ranks=4, rows=128)
    assert table.index.tolist() == ["1", "2.5", "10", "25", "100"]
    assert table["compute"].unique().tolist() == [7.4]
    assert table["step"].is_monotonic_decreasing and table["step"].iloc[-1] > 7.4
    assert table["longer by"].iloc[0] == f"{table['step'].iloc[0] / 7.4 - 1:.0%}"


def test_the_numbers_of_the_page_hold():
    """Weak scaling by network, the batch, and what others have published."""
    weak = projection.weak_scaling_table().pivot(
        index="ranks", columns="network", values="efficiency"
    )
    assert (weak.loc[:8] > 0.99).all(axis=None)  # one node
    infiniband, shared, slow = weak.loc[1024][list(projection.NETWORKS)]
    assert infiniband > 0.99 and 0.6 < shared < 0.65 and slow < 0.25
    assert projection.ROWS * projection.SEQUENCE == 65_536
    assert projection.published_table()["efficiency"].tolist() == [0.785, 0.973]


def test_where_a_step_is_shortest_on_the_page():
    """By the formula and by trying; half as many GPUs are nearly as fast."""
    for mib in (25, 250):
        tables, turning = projection.strong_scaling_tables(1024, [mib])
        (table,), (ranks,) = tables.values(), turning.values()
        assert table["seconds"].iloc[0] == pytest.approx(38, abs=0.5)
        (tried,) = projection.fastest_gpu_counts(tables).values()
        assert abs(tried - ranks) <= 1
        job, n = projection.gpu_job(bucket=mib * 2**20), round(ranks)
        half = predict_step(job, projection.FLAT, n // 2, 1024 / (n // 2)).seconds
        assert half < 1.1 * predict_step(job, projection.FLAT, n, 1024 / n).seconds
        quadruple = turning_point(job, projection.FLAT, 4096)
        assert 1.9 < quadruple / ranks < 2.2


def test_the_pictures_say_their_numbers_in_words():
    """Each can be drawn, and its alt text holds what it shows."""
    words = projection.weak_plot().alt
    assert "InfiniBand NDR, one port per GPU from 1 to 1" in words
    assert "measured from 8 to 128 GPUs: 97.3%" in words
    strong = projection.strong_plot(*projection.strong_scaling_tables(1024, [25, 250]))
    assert "1.76 s at the shortest, on about 43" in strong.alt
    rows = {"ring": (predict_step(JOB, RING, 4, 100), bucket_timings(JOB, RING, 4, 100))}
    assert "all-reduce from" in costs.timeline_plot(rows).alt
