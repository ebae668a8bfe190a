"""What 02's core page and its pages on the batch and the price say, and no cell shows quietly."""

import inspect
import math
import re

import nbformat
import numpy as np
import pandas as pd
import pytest

from ddp_workbook import launch, speed_up, step_time_plot, summary
from ddp_workbook.chapters import distributed_data_parallel
from ddp_workbook.chapters.digits import DigitsMLP
from ddp_workbook.experiments.distributed_data_parallel import (
    accumulation,
    autocast,
    batch_size,
    break_even_batch,
    hooks,
    messages,
    one_step,
    step_times,
    straggler,
)
from ddp_workbook.page.pages import FOLDER, place_of
from manyranks import figures
from manyranks.errors import RankFailed
from manyranks.recording.collectives import record_collectives
from tests.picture_text import words
from tests.workers import ddp_claims as workers
from tools.set_up import ROOT

NOTEBOOKS = ROOT / "notebooks"


def prose(stem: str) -> str:
    """The Markdown of a page."""
    cells = nbformat.read(FOLDER / place_of(stem), as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


# A step of two ranks


@pytest.fixture(scope="module")
def steps() -> list[one_step.Step]:
    """What the first picture shows."""
    return launch(one_step.step_of_this_rank, ranks=2)


def test_the_all_reduce_makes_the_mean_and_the_page_adds_up_the_first(steps):
    for mine, others in zip(steps[0].buckets, steps[1].buckets, strict=True):
        assert mine.mean == others.mean == pytest.approx((mine.own + others.own) / 2, abs=1e-7)
    first = [f"{step.buckets[0].own:.4f}" for step in steps]
    said = f"({first[0]} + {first[1]}) / 2 = {steps[0].buckets[0].mean:.4f}"
    assert said in prose("02_distributed_data_parallel")


def test_ranks_take_rows_in_turns_and_send_the_output_first(steps):
    assert [step.rows for step in steps] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    layers = [bucket.layers for bucket in steps[0].buckets]
    assert layers == [["output", "hidden.2"], ["hidden.1"], ["hidden.0"]]


def test_the_first_picture_shows_samples_buckets_and_means(steps):
    picture = one_step.replicas(steps)
    said = words(picture)
    assert {"sample 0", "sample 1", "rank 0: a process", "hidden.1"} <= set(said)
    assert sum(f"{steps[0].buckets[0].mean:.4f} …" in text for text in said) == 2
    assert f"{steps[1].buckets[0].own:.4f}" in picture.alt


# What is sent


def test_what_three_steps_send_line_by_line():
    sent = messages.messages_of_rank_0(messages.three_steps)
    by_line = sent.groupby("line", sort=False)["op"].agg(list)
    assert by_line["ddp = DistributedDataParallel(model)"] == ["all_gather"] + ["broadcast"] * 2
    assert by_line["scores = ddp(images)"] == ["broadcast"] * 2
    assert by_line["F.cross_entropy(scores, labels).backward()"] == ["all_reduce"] * 3
    assert by_line["dist.barrier()"] == ["barrier"]
    assert len(list(DigitsMLP(depth=3).parameters())) == 8


def test_logging_once_costs_one_all_reduce_an_epoch():
    """29 batches, a bucket each, and the losses."""
    sent = record_collectives(distributed_data_parallel.train, ranks=2, epochs=1)
    assert list(sent[sent["op"] == "all_reduce"].groupby("rank").size()) == [30, 30]


def test_no_sync_sends_nothing():
    sent = record_collectives(workers.without_sync, ranks=2)
    lines = inspect.getsource(workers).splitlines()
    (number,) = [n for n, text in enumerate(lines, 1) if text.endswith("# unsynchronised")]
    assert not sent["line"].str.endswith(f":{number}").any()


# Buckets


@pytest.fixture(scope="module")
def backward() -> hooks.Backward:
    """What the picture of the buckets shows."""
    return min(launch(hooks.backward_passes, ranks=2)[0], key=lambda one: one.end)


def test_the_first_bucket_has_the_last_layers_and_leaves_before_the_last_gradient(backward):
    inside = [one.name for one in backward.ready if one.bucket == 0]
    assert {name.rpartition(".")[0] for name in inside} == {"output", "hidden.7", "hidden.6"}
    assert backward.buckets[0].start < backward.last_gradient
    assert [one.size >= hooks.CAP * 2**20 for one in backward.buckets] == [True] * 3 + [False]
    assert sum(one.size for one in backward.buckets) == sum(one.size for one in backward.ready)


def test_the_picture_of_buckets_marks_the_last_gradient(backward):
    picture = hooks.buckets_plot([[backward]])
    exposed = figures.number(backward.end - backward.last_gradient)
    named = {"output, hidden 6 to 7: 0.51 MiB", "last gradient ready", f"exposed: {exposed} ms"}
    assert named <= set(words(picture))
    assert f"is exposed, {exposed} ms" in picture.alt
    assert f"ready at {backward.last_gradient:.1f}" in picture.alt


def test_a_bucket_has_a_lane_and_is_red_after_the_last_gradient():
    ready = [hooks.Gradient(f"hidden.{n}.weight", 2**20, 1 - n, 4.0 - 2 * n) for n in (1, 0)]
    drawn = hooks.Backward(ready, [hooks.Bucket(2**20, 2.0, 5.0), hooks.Bucket(2**20, 4.0, 7.0)])
    axes = hooks.buckets_plot([[drawn]]).figure.axes[1]
    bars = [(bar[0].get_y() + 0.35, bar[0].get_x(), bar[0].get_width()) for bar in axes.containers]
    assert bars == [(0, 2, 2), (0, 4, 1), (1, 4, 3)]
    red = [bar[0].get_facecolor()[0] > 2 * bar[0].get_facecolor()[2] for bar in axes.containers]
    assert red == [False, True, True]


def test_a_bucket_is_closed_at_its_size_and_the_page_says_how_large_it_gets():
    sent = record_collectives(workers.eighty_mebibytes, ranks=2).query("rank == 0")
    in_mib = [round(size / 2**20) for size in sent[sent["op"] == "all_reduce"]["bytes"]]
    assert in_mib == [80, 4, 28, 28, 20]
    page = prose("02_distributed_data_parallel")
    assert "A model of 20 layers of 4 MiB gets buckets of 4, 28, 28 and 20 MiB." in page


# Waiting


@pytest.mark.parametrize("who", [0, 1])
def test_any_rank_can_be_the_one_that_all_wait_for(who):
    """Late in `step` four times; nobody waits for the last one."""
    for rank, parts in enumerate(launch(straggler.run_steps, "step", who, ranks=3)):
        waited = straggler.milliseconds_waited(parts)
        if rank == who:
            slept = sum(part.end - part.start for part in parts if part.name == straggler.ASLEEP)
            assert slept >= 4 * straggler.DELAY_MS - 1
        else:
            assert waited["forward"] + waited["backward"] > 2.5 * straggler.DELAY_MS
            assert waited["step"] == 0


def test_the_second_forward_waits_for_the_order_of_the_buckets():
    parts = launch(straggler.run_steps, "forward", 1, ranks=2)[0]
    long = [part.inside for part in parts if part.name == "waits" and part.end - part.start > 25]
    assert long == ["backward", "forward", "backward", "backward"]


def test_a_late_constructor_is_waited_for_in_the_constructor():
    of_ranks = launch(straggler.run_steps, late="constructor", ranks=2)
    first = straggler.milliseconds_waited(straggler.with_waiting_in_constructor(of_ranks)[0])
    assert first["constructor"] > 0.8 * straggler.DELAY_MS


def test_the_timeline_draws_waiting_as_waiting():
    parts = [
        [straggler.Part("forward", 0.0, 3.0), straggler.Part("waits", 3.0, 90.0, "backward")],
        [straggler.Part("sleeps", 0.0, 80.0), straggler.Part("step", 80.0, 90.0)],
    ]
    picture = straggler.timeline_plot(parts, who=1, late="step")
    assert "Rank 1 sleeps 50 ms in each step. rank 0 waits 87 of 90 ms" in picture.alt
    assert "rank 0 waits in backward from 3 to 90; rank 1 sleeps from 0 to 80" in picture.alt
    assert {"waits in backward", "sleeps", "rank 0"} <= set(words(picture))
    assert "No rank is late" in straggler.timeline_plot(parts).alt


@pytest.mark.push("claims of the pages that take long")
def test_pages_controls_change_the_buckets_and_the_straggler():
    play = hooks.play_buckets()
    play.controls["cap"].value = 25
    play.wait()
    assert "bucket 0 (output, hidden 0 to 7)" in play.answer.words
    play = straggler.play_straggler()
    for name, value in {"who": 2, "late": "backward", "by": 100}.items():
        play.controls[name].value = value
    play.wait()
    assert "Rank 2 sleeps 100 ms in each backward. rank 0 waits " in play.answer.words
    match = re.search(r"rank 0 waits (\d+) of \d+ ms, most in (\w+);", play.answer.words)
    assert int(match[1]) > 300 and match[2] == "backward"


# Memory, and who writes


def test_a_rank_has_fewer_activations_and_everything_else_whole():
    ways = {1: autocast.ALONE, 2: autocast.DDP, 4: autocast.DDP}
    found = {n: launch(autocast.memory_of_step, way, ranks=n)[0][0] for n, way in ways.items()}
    table = autocast.by_part(found)
    for part in ("parameters", "gradients", "optimizer state"):
        assert table[part].nunique() == 1
    assert list(table["buckets"]) == [0, *table["gradients"][1:]]
    kilobytes = autocast.memory_by_ranks((1, 2))
    assert list(kilobytes["ranks"]) == [1, 2] and list(kilobytes["samples"]) == [512, 256]
    assert kilobytes["gradients, kB"].iloc[0] == round(table["gradients"].iloc[0] / 1e3)
    shares = table["activations"] / table["activations"].iloc[0]
    assert list(shares) == pytest.approx([1, 1 / 2, 1 / 4], rel=0.01)


def test_a_barrier_inside_the_if_is_reported():
    with pytest.raises(RankFailed, match="entered by rank 0, never by rank 1"):
        launch(workers.barrier_for_rank_0, ranks=2)


def test_tensorboard_writes_a_file_for_each_rank_and_reads_them_as_one_run(tmp_path):
    """Event files, really written by four ranks, and by rank 0 alone."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    counts = {}
    for everyone in (True, False):
        folder = tmp_path / f"{everyone}"
        launch(workers.tensorboard_events, str(folder), everyone, ranks=4)
        run = EventAccumulator(str(folder))
        run.Reload()
        counts[len(list(folder.glob("events.out.tfevents.*")))] = len(run.Scalars("loss"))
    assert counts == {4: 4 * 3, 1: 3}


# The batch


def test_the_pages_global_batch_is_rows_times_micro_batches_times_ranks():
    rows = inspect.signature(accumulation.timeline_of_this_rank).parameters["rows"].default
    factors = [rows, accumulation.MICRO_BATCHES, 2]
    times = " \N{MULTIPLICATION SIGN} ".join(map(str, factors))
    said = f"= {times} = {math.prod(factors)} rows"
    assert said in prose("02_further_the_batch")


def test_accumulation_sends_a_quarter_and_the_picture_shows_each_all_reduce():
    ways = ["sends after every micro-batch", "sends once (no_sync)"]
    events = launch(accumulation.timeline_of_this_rank, ways, ranks=2)[0]
    sent = events[events["micro_batch"] == 0].groupby("way", sort=False).size()
    assert list(sent) == [4 * sent.iloc[1], sent.iloc[1]]
    assert (events["end"] > events["start"]).all()
    last = events[(events["way"] == ways[1]) & (events["micro_batch"] == 4)]["start"].item()
    assert (events[events["way"] == ways[1]].query("micro_batch == 0")["start"] > last).all()
    picture = accumulation.lanes(events)
    assert len(picture.axes.patches) == len(events)
    assert f"{ways[0]}: 4 micro-batches, {sent.iloc[0]} all-reduces" in picture.alt


def test_with_the_flag_set_late_the_first_micro_batch_is_the_one_that_is_sent():
    """The last digit is the mean of 1 and 2; the others stay on their ranks."""
    assert launch(workers.set_flag_late, ranks=2) == [1111.5, 2221.5]


def test_trainings_that_leave_the_picture_are_cut_off():
    curves = pd.DataFrame({"mean": [2.0, 1.0], "sum": [2.0, 300.0]}).rename_axis("step")
    picture = batch_size.trainings({"SGD": curves, "Adam": curves}, highest=20)
    assert [axes.get_ylim()[1] for axes in picture.figure.axes] == [20, 20]
    assert "SGD: mean from 2 to 1, sum from 2 to 300" in picture.alt


def test_a_sum_over_32_ranks_is_eight_times_that_over_four():
    assert batch_size.WAYS["sum, lr · 8"] == (batch_size.sum_hook, 32 / 4)


# Does it pay?


@pytest.mark.parametrize("compute", [1.0, 163.0, 165.0, 4000.0])
def test_the_rule_does_not_contain_the_number_of_ranks(compute):
    """For the page's example on 10 Gbit/s the two sides are equal at 163.84 ms."""
    gradients, bandwidth = 4 * 25.6, 1.25
    for ranks in (2, 3, 8, 64, 1000):
        together = compute / ranks + 2 * (ranks - 1) / ranks * gradients / bandwidth
        assert (together < compute) == (compute > 2 * gradients / bandwidth)


NUMBERS = [  # ranks, rows, compute, update, gradients, all_reduce, step
    break_even_batch.StepCosts(2, 32, 4.0, 0.5, 3.0, 6.0, 9.0),
    break_even_batch.StepCosts(2, 128, 16.0, 0.5, 3.0, 6.0, 14.0),
]


def test_the_formula_is_filled_in():
    assert list(break_even_batch.table(NUMBERS)["bandwidth B, GB/s"]) == [0.5, 0.5]
    assert list(break_even_batch.table(NUMBERS)["2 S / B, ms"]) == [12.0, 12.0]
    steps = break_even_batch.against_formula(NUMBERS)
    assert list(steps["one process"]) == [4.5, 16.5] and list(steps["DDP"]) == [9.0, 14.0]
    assert list(steps["nothing hidden"]) == [8.5, 14.5]
    hidden = [2 + 6 - 4 / 3 + 0.5, 8 + 6 - 16 / 3 + 0.5]
    assert list(steps["hidden by backward"]) == pytest.approx(hidden)
    assert break_even_batch.break_even_rows(NUMBERS) == pytest.approx(96)
    assert np.isnan(break_even_batch.break_even_rows(NUMBERS[1:]))


def test_the_break_even_is_marked_where_it_is_in_the_picture():
    steps = break_even_batch.against_formula(NUMBERS)
    picture = break_even_batch.break_even(steps, 96.0)
    assert " C = 2 S / B" in words(picture)
    assert "32 rows: one process 4.5, DDP 9.0" in picture.alt and "at 96 rows" in picture.alt
    assert " C = 2 S / B" not in words(break_even_batch.break_even(steps, math.nan))


def test_the_calculator_says_what_the_page_says():
    """On 10 Gbit/s no number of ranks pays; on 100 eight are 3.7 or 5.4 times as fast."""
    links = "Ethernet 10G", "Ethernet 100G"
    slow, fast = (break_even_batch.speed_ups(100, 25.6, 32, link) for link in links)
    assert slow["nothing hidden"].iloc[1:].max() < 1 and slow.at[64, "nothing hidden"] < 1
    assert slow.at[8, "hidden by backward"] < 1
    assert fast.loc[8].round(1).tolist() == [3.7, 5.4]
    assert fast.max(axis=None) < 6.1 < 100 / (2 * 4 * 25.6 / 12.5)  # the ceiling, C / (2 S / B)
    play = break_even_batch.play_calculator()
    assert "2 S / B is 164 ms: without overlap DDP does not pay" in play.answer.words
    play.controls["link"].value = "NVLink 4"
    play.wait()
    assert play.answer.words.endswith("DDP pays.")


@pytest.mark.push("claims of the pages that take long")
def test_a_batch_of_64_trains_as_one_process_however_it_is_made():
    play = batch_size.play_batch()
    for ranks, micro_batches, rows in ((1, 4, 16), (2, 1, 32), (4, 1, 16)):
        choice = {"ranks": ranks, "micro_batches": micro_batches, "rows": rows, "rate": "lr "}
        losses = launch(batch_size.losses_with_accumulation, **choice, optimizer="SGD")
        assert losses[0] == pytest.approx(batch_size.first_training("SGD"), abs=1e-4)
    assert "32 · 8 · 2 = 512 rows a step, 4 steps an epoch" in play.answer.words
    play.controls["micro_batches"].value = 1
    play.wait()
    assert "32 · 1 · 2 = 64 rows a step, 29 steps an epoch" in play.answer.words


@pytest.mark.parametrize("optimizer", batch_size.RATES)
def test_eight_times_the_rate_makes_up_for_eight_times_the_rows(optimizer):
    """One process trains, because N ranks with the same batch give the same."""
    small = batch_size.first_training(optimizer)
    rate, rows = batch_size.RATES[optimizer], 8 * batch_size.SMALL
    same, by_root, by_size = (
        batch_size.losses_of_one_process(optimizer, rows, rate * factor, batch_size.PLAY_EPOCHS)
        for factor in (1, 8**0.5, 8)
    )
    assert same[-1] > 2 * by_root[-1] > 2 * by_size[-1] and by_size[-1] < 1.2 * small[-1]
    if optimizer == "SGD":
        assert all(large > one for large, one in zip(by_size[1:4], small[1:4], strict=True))
        far, jumps = (
            batch_size.losses_of_one_process(optimizer, some, rate * 16, batch_size.PLAY_EPOCHS)
            for some in (rows, batch_size.SMALL)
        )
        assert far[-1] < small[-1] and all(jumps[epoch] > small[epoch] for epoch in (2, 3))
        said = f"(a loss of {by_size[-1]:.2f}, against {small[-1]:.2f})"
        assert said in prose("02_further_the_batch")


def test_the_numbers_are_measured_for_each_number_of_rows():
    (one,) = break_even_batch.measure_step_costs(rows=[16], ranks=2)
    size = sum(
        p.numel() for p in DigitsMLP(break_even_batch.WIDTH, break_even_batch.DEPTH).parameters()
    )
    assert (one.ranks, one.rows, one.gradients) == (2, 16, pytest.approx(4 * size / 1e6))
    assert min(one.compute, one.update, one.all_reduce, one.step) > 0


def test_the_published_figures_scale_as_the_page_says():
    found = break_even_batch.published_speeds()
    of_eight = found[found["GPUs"].str.startswith("8")].set_index("precision")["scaling"]
    assert list(of_eight.drop("16 bits")) == ["0.97", "0.97"]
    assert list(of_eight["16 bits"]) == ["0.87", "0.84"]
    fast, slow = map(float, found.loc[found["GPUs"] == "2 TITAN RTX", "all GPUs"])
    assert f"{fast / slow:.1f}" == "1.3"
    assert (fast, slow) == tuple(round(200 * 8 / taken, 1) for taken in (101.9003, 131.4367))
    said = "97 % in float32 and TF32", "84 to 87 % in 16 bits", "1.3 times as fast"
    assert [one for one in said if one not in prose("02_further_does_it_pay")] == []


# The recorded run


@pytest.fixture(scope="module")
def timings() -> pd.DataFrame:
    """Median seconds of each size and candidate, recorded by `make benchmark`."""
    table = summary(step_times.read_timings(), "one process, 1 thread")
    return table.set_index(["width", "batch", "candidate"])


DP, DDP = "DataParallel, 2 replicas (stand-in: CPU threads)", "DDP, 2 ranks"


def test_the_recorded_milliseconds_are_those_that_the_page_names(timings):
    ms = (timings["median"] * 1e3).map("{:.1f}".format)
    assert ms[64, 64, "one process, 1 thread"] == "2.4"
    assert "takes 2.4 ms" in prose("02_further_does_it_pay")


def test_the_recorded_speed_ups_are_those_that_the_pages_name():
    table = speed_up(step_times.read_timings(), "one process, 1 thread")
    of_ddp = table[table["candidate"] == DDP].set_index(["width", "batch"])["median"]
    assert [f"{one:.2f}" for one in of_ddp[1024]] == ["1.13", "1.73"]
    assert (of_ddp.drop(1024) < 1).all()
    of_dp = table[table["candidate"] == DP].set_index(["width", "batch"])["median"]
    assert f"{of_dp[1024, 256]:.2f}" == "1.17"
    for stem, said in {
        "02_distributed_data_parallel": ("rises from 1.13 to 1.73", "1.17 and 1.13,"),
        "02_further_does_it_pay": ("1.73 times as fast", "(1.13)"),
    }.items():
        assert [one for one in said if one not in prose(stem)] == []


def test_one_process_is_the_fastest_of_every_recorded_size(timings):
    fastest = timings.groupby(["width", "batch"], sort=False)["median"].idxmin()
    threads = [name for _, _, name in fastest]
    assert threads == ["one process, 1 thread"] + ["one process, 2 threads"] * 3


def test_the_recorded_parts_are_those_that_the_page_names():
    parts = step_times.read_timings("dp_and_ddp_breakdown").query("width == 64")
    ms = (parts.set_index(["candidate", "part"])["seconds"] * 1e3).map("{:.1f}".format)
    text = prose("02_further_does_it_pay")
    assert f"waits {ms[DDP, 'all-reduce not hidden']} ms" in text
    assert f"spends {ms[DP, 'replicate']} ms" in text
    assert "DDP, 2 ranks: compute 2.16" in step_times.breakdown_bars(parts).alt


def test_only_the_largest_size_computes_much_for_each_megabyte_of_gradients(timings):
    alone = timings.xs("one process, 1 thread", level="candidate")["median"]
    models = {(one.width, one.batch): DigitsMLP(one.width, one.depth) for one in step_times.SIZES}
    megabytes = {
        size: sum(p.numel() for p in model.parameters()) * 4 / 1e6 for size, model in models.items()
    }
    *small, large = (1e3 * alone[size] / megabytes[size] for size in megabytes)
    assert min(small) > 4 and max(small) < 6 and f"{large:.0f}" == "18"
    assert "takes 18 ms of one thread for each MB" in prose("02_further_does_it_pay")


def test_the_deep_model_of_the_timings_has_33_layers_and_66_gradients():
    model = DigitsMLP(64, 32)
    assert len(model.hidden) + 1 == 33 and len(list(model.parameters())) == 66


def test_an_outlier_does_not_squeeze_the_bars():
    rows = [("one", 1, 0.001), ("one", 2, 0.002), ("one", 3, 5.0), ("two", 1, 0.003)]
    frame = pd.DataFrame(rows, columns=["candidate", "round", "seconds"])
    picture = step_time_plot(frame)
    assert picture.axes.get_xlim()[1] < 6 and "one 2; two 3" in picture.alt


def test_each_rank_keeps_its_own_scores():
    """Nothing gathers the outputs of the ranks: each has its own ten rows."""
    assert launch(workers.scores_of_ten_rows, ranks=2) == [(10, 10)] * 2
