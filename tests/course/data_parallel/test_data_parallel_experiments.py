"""What the pages of chapter 01 run and draw, and that each picture's words have its numbers."""

import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex

from ddp_workbook.chapters import data_parallel
from ddp_workbook.chapters.digits import DigitsMLP
from ddp_workbook.experiments.data_parallel import gil, memory, one_step, timeline, weighting
from ddp_workbook.experiments.data_parallel.step_times import Size
from manyranks import figures
from manyranks.rank_colours import rank_colour

THIRDS = [3, 3, 3, 1]


@pytest.mark.parametrize(("rows", "sizes"), [(10, THIRDS), (5, [2, 2, 1])])
def test_one_step_has_the_loss_of_one_process(rows, sizes):
    step = one_step.run_step(samples=rows, devices=4)
    assert step.sizes == sizes
    assert step.loss == pytest.approx(step.loss_alone, abs=1e-5)
    assert sum(step.shares) == pytest.approx(step.loss, abs=1e-5)
    picture = one_step.operations(step)
    shown = " ".join(text.get_text() for axes in picture.figure.axes for text in axes.texts)
    for words in (shown, picture.alt):
        assert all(f"{share:.3f}" in words for share in [*step.shares, step.loss_alone])


def test_the_weight_of_a_row_is_found_from_gradients():
    images, labels = torch.rand(10, 64), torch.arange(10)
    model = DigitsMLP()
    pieces = data_parallel.scatter(images, labels, one_step.cpu_devices(4))
    gradients = torch.stack([weighting.gradient(model, *piece) for piece in pieces])
    combined = {"plain": gradients.mean(dim=0), "right": torch.tensor(THIRDS) / 10 @ gradients}
    found = weighting.weight_of_each_row(model, images, labels, combined)
    assert found.loc["plain"].tolist() == pytest.approx([1 / 12] * 9 + [1 / 4], abs=1e-3)
    assert found.loc["right"].tolist() == pytest.approx([1 / 10] * 10, abs=1e-3)
    picture = weighting.row_weights(found, THIRDS)
    assert "8: device 2 0.0833; 9: device 3 0.25. right: 0: device 0 0.1; " in picture.alt
    heights = [bar.get_height() for bar in picture.axes.patches if bar.get_height()]
    assert heights == pytest.approx(found.loc["plain"].tolist())
    assert [text.get_text() for text in picture.axes.texts] == [f"device {n}" for n in range(4)]


@pytest.mark.parametrize("devices", [2, 3])
def test_in_a_watched_step_the_main_thread_frames_the_others(devices, monkeypatch):
    originals = [getattr(data_parallel, name) for name in timeline.OPERATIONS]
    events = timeline.record_step(devices, Size(16, 1, 64), tries=1)
    assert [getattr(data_parallel, name) for name in timeline.OPERATIONS] == originals
    calls = events.groupby("what")["lane"].nunique()
    assert calls["compute"] == devices and calls.drop("compute").eq(1).all()
    first, last = timeline.parallel_part(events)
    ends = events.set_index("what")
    assert ends.at["replicate", "end"] <= first < last <= ends.at["add gradients", "start"]
    monkeypatch.setattr(timeline, "record_step", lambda _: events)
    picture = timeline.step(devices)
    names = [label.get_text() for label in picture.axes.get_yticklabels()]
    assert names == [timeline.MAIN, *(f"thread {number}" for number in range(devices))]
    assert f"works alone until {first:.3g} ms" in picture.alt


def test_only_device_0_holds_state_and_outputs():
    held = memory.bytes_by_device(devices=3, size=Size(16, 1, 30))
    assert held.loc[[1, 2], ["optimizer state", "outputs"]].to_numpy().sum() == 0
    assert held.at[0, "outputs"] == 30 * 10 * 4
    assert held["parameters"].nunique() == 1
    assert held.at[0, "optimizer state"] > held.at[0, "parameters"]
    words = memory.memory_plot(devices=2).alt
    assert "outputs 40" in words.partition("device 1")[0]
    assert "outputs" not in words.partition("device 1")[2]


def test_a_model_notes_who_calls_it():
    model, calls = timeline.call_recording_model()
    data_parallel.forward_and_backward(
        model, torch.rand(5, 64), torch.arange(5), one_step.cpu_devices(2)
    )
    assert sorted(rows for _, rows in calls) == [2, 3]
    assert sorted(thread for thread, _ in calls) == ["thread 0", "thread 1"]
    model(torch.rand(7, 64))
    assert calls[-1] == (timeline.MAIN, 7)


def test_the_price_is_what_only_the_main_thread_does():
    rows = [("main thread", "replicate", 0, 1), ("main thread", "add gradients", 9, 10)]
    rows += [(f"thread {number}", "compute", 1, 8) for number in range(2)]
    events = pd.DataFrame(rows, columns=["lane", "what", "start", "end"])
    assert timeline.copy_share(events) == pytest.approx(0.2)
    picture = timeline.comparison_plot([timeline.StepComparison(events, 12.0)])
    assert "copying and adding take 20%" in picture.alt
    assert "One process: 12 ms. DataParallel is faster here." in picture.alt
    assert (
        "One process is faster"
        in timeline.comparison_plot([timeline.StepComparison(events, 8.0)]).alt
    )


def test_bars_have_their_names_beside_or_in_them_and_the_colour_of_their_device():
    rows = [("main thread", "replicate", 0, 1), ("main thread", "add gradients", 19, 20)]
    rows += [(f"thread {number}", "compute", 1, 18) for number in range(2)]
    events = pd.DataFrame(rows, columns=["lane", "what", "start", "end"])
    picture = timeline.comparison_plot([timeline.StepComparison(events, 12.0)])
    names = [text.get_text() for text in picture.axes.texts]
    assert sorted(names) == ["add gradients", *["compute"] * 3, "replicate", "waits"]
    edges = [to_hex(bar.get_edgecolor()) for bar in picture.axes.patches]
    assert edges[2:4] == [rank_colour(0), rank_colour(1)] and not picture.figure.legends


def test_one_process_and_threads_take_turns_and_the_fastest_of_each_is_shown(monkeypatch):
    steps = iter([5.0, 3.0, 4.0])
    events = pd.DataFrame([("main thread", "gather", 0.0, 1.0)])
    events.columns = ["lane", "what", "start", "end"]
    monkeypatch.setattr(timeline, "STEPS", (3, 3))
    monkeypatch.setattr(timeline, "record_step", lambda *_, **__: events.assign(end=next(steps)))
    alone = iter([[0.003], [0.001], [0.002]])
    monkeypatch.setattr(timeline, "time_step", lambda *_, **__: next(alone))
    result = timeline.compare_step(width=16, batch=16, devices=2)
    assert (result.events["end"].max(), result.alone) == (3.0, 1.0)


def test_every_copy_is_as_wide_as_the_model():
    picture = one_step.operations(one_step.run_step(samples=10, devices=4))
    top = one_step.ROWS["replicate"][1]
    widths = [p.get_width() for p in picture.axes.patches if p.get_y() == top]
    assert len(widths) == 4 and len(set(widths)) == 1


def test_the_difference_from_one_process_is_shown_of_the_gradient_that_has_the_largest():
    ours, theirs = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    ours.weight.grad, theirs.weight.grad = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.5]])
    ours.bias.grad = theirs.bias.grad = torch.tensor([9.0])
    table = one_step.difference_table(torch.tensor(0.5), torch.tensor(0.25), ours, theirs)
    assert table["difference"].tolist() == [0.25, -0.5]
    assert table["one process"].tolist() == [0.25, 2.5]


def test_a_played_step_has_a_lane_for_each_thread_and_one_for_one_process():
    play = timeline.play_step()
    for name, value in {"width": 64, "batch": 16, "devices": 3}.items():
        play.controls[name].value = value
    play.wait()
    assert play.answer.error is None and "thread 2: compute" in play.answer.words
    assert "thread 3" not in play.answer.words and "one process: compute" in play.answer.words


def test_each_job_is_timed_with_one_thread_and_with_two(monkeypatch):
    monkeypatch.setattr(gil, "JOBS", (gil.many_small_products,))
    cores = torch.get_num_threads()
    table = gil.compare_thread_counts(rounds=1)
    assert torch.get_num_threads() == cores
    job = table.loc["many small products"]
    assert job["ratio"] == pytest.approx(job["2 threads"] / job["1 thread"])
    picture = gil.two_threads_plot(table)
    assert f"many small products {figures.number(job['ratio'])}" in picture.alt
    assert len(picture.axes.patches) == 1
