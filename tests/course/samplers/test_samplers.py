"""Chapter 04: its worker against one process, its pictures, and what its page says."""

import xml.etree.ElementTree as ET

import pytest
import torch
import torch.distributed as dist
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text
from torch.utils.data import DataLoader, DistributedSampler

from ddp_workbook import launch
from ddp_workbook.chapters import samplers
from ddp_workbook.chapters.digits import DigitsMLP
from ddp_workbook.chapters.digits import accuracy as accuracy_of_one_process
from ddp_workbook.experiments.samplers.assignments import assignment_plot, owners_plot, sample_table
from ddp_workbook.experiments.samplers.pinning import PINNING_ALT, pinning_plot
from ddp_workbook.experiments.samplers.uneven_inputs import steps_with_join
from manyranks.errors import RankFailed
from manyranks.figures.palette import INK
from manyranks.rank_colours import rank_colour
from manyranks.recording.collectives import run_and_record
from tests.picture_text import words
from tests.workers import samplers_workers as workers
from tools.set_up import ROOT

# The worker


@pytest.mark.parametrize(("ranks", "batch_size"), [(3, 64), (4, 66), (2, 1)])
def test_a_batch_that_cannot_be_shared_equally_is_refused(ranks, batch_size):
    words = f"ValueError: batch_size={batch_size}: {ranks} ranks need a multiple of {ranks}"
    with pytest.raises(RankFailed, match=words):
        launch(samplers.train, ranks=ranks, batch_size=batch_size)


class Rows:
    """Sample i is (i, i), in place of an image and its label."""

    def __init__(self, count: int):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[int, int]:
        return row, row


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("share", [1, 2, 5])
def test_without_padding_each_row_comes_once_and_in_the_batch_of_one_process(
    monkeypatch, ranks, share
):
    monkeypatch.setattr(dist, "get_world_size", lambda: ranks)
    for count in range(1, 24):
        rank_batches = []
        for rank in range(ranks):
            monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
            sampler = DistributedSampler(Rows(count), ranks, rank)
            sampler.set_epoch(count)
            loader = DataLoader(Rows(count), share, sampler=sampler)
            rank_batches.append(list(samplers.without_padding(loader)))
        generator = torch.Generator().manual_seed(count)
        whole = torch.randperm(count, generator=generator).split(share * ranks)
        assert [len(steps) for steps in rank_batches] == [len(whole)] * ranks
        for batch, parts in zip(whole, zip(*rank_batches, strict=True), strict=True):
            assert [rows for *_, rows in parts] == [len(batch)] * ranks
            together = torch.cat([images for images, *_ in parts])
            assert sorted(together.tolist()) == sorted(batch.tolist())
            assert all(torch.equal(images, labels) for images, labels, _ in parts)


def test_in_the_last_step_three_of_four_ranks_cut_off_a_sample(monkeypatch):
    """1,797 samples in batches of 120."""
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    last_steps = []
    for rank in range(4):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        sampler = DistributedSampler(Rows(1797), 4, rank)
        loader = DataLoader(Rows(1797), 30, sampler=sampler)
        *full, last = [(len(own), whole) for own, _, whole in samplers.without_padding(loader)]
        assert full == [(30, 120)] * 14 and len(list(loader)[-1][0]) == 30
        last_steps.append(last)
    assert last_steps == [(30, 117), (29, 117), (29, 117), (29, 117)]


@pytest.mark.parametrize("count", [1, 2, 5, 21])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_accuracy_is_exact_however_much_was_padded(count, shuffle):
    torch.manual_seed(0)
    expected = accuracy_of_one_process(DigitsMLP(), workers.some_digits(count))
    found = launch(workers.accuracy, count, ranks=4, shuffle=shuffle)
    assert found == pytest.approx([expected] * 4)


def test_the_accuracy_sends_one_number_for_each_digit():
    _, wire = run_and_record(workers.accuracy, 21)
    assert list(zip(wire["op"], wire["bytes"], strict=True)) == [("all_reduce", 4 * 21)] * 2


# The pictures

PINNING_FILE = ROOT / "figs" / "samplers_pinning.svg"
DEALT = {0: [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]], 1: [[0], [1], [2], [3]]}
STEPS = {0: [[4, 5, 6]]}


def boxes(picture) -> list[FancyBboxPatch]:
    return [patch for patch in picture.axes.patches if isinstance(patch, FancyBboxPatch)]


def edge(box: FancyBboxPatch) -> str:
    return "#" + "".join(f"{round(part * 255):02x}" for part in box.get_edgecolor()[:3])


def test_the_table_has_a_row_for_each_sample():
    table = sample_table(DEALT)
    assert list(table.columns) == ["epoch", "rank", "place", "sample"]
    assert len(table) == 16
    assert table.iloc[5].tolist() == [0, 1, 2, 9]


def test_the_microscope_frames_what_was_given_out_before():
    picture = assignment_plot(sample_table(DEALT))
    all_boxes = boxes(picture)
    heavy = [box for box in all_boxes if edge(box) == INK]
    assert len(all_boxes) == 16 and len(heavy) == 2  # ranks 2 and 3 got 0 and 1, a second time
    assert {edge(box) for box in all_boxes} == {INK, *(rank_colour(rank) for rank in range(4))}
    assert {"epoch 0", "epoch 1", "rank 3", "9"} <= set(words(picture))
    assert any("heavy frame" in text for text in words(picture))
    assert not any(
        "heavy" in text for text in words(assignment_plot(sample_table({0: [[1], [2]]})))
    )


def test_the_owners_show_who_got_a_sample_twice_or_nobody():
    picture = owners_plot(sample_table({"before": DEALT[0], "after": DEALT[1]}), 10)
    all_boxes = boxes(picture)
    dashed = [box for box in all_boxes if edge(box) == INK]
    assert len(dashed) == 6  # 4 to 9 in "after"
    halves = [box for box in all_boxes if box.get_width() < 0.5]
    assert [edge(box) for box in halves] == [rank_colour(rank) for rank in (0, 2, 1, 3)]
    assert {"before", "after"} <= set(words(picture))
    assert any(text == "divided box: given out twice; dashed: left out" for text in words(picture))
    picture = owners_plot(sample_table({0: [[0], [1]]}), 2)
    assert not any("dashed" in text or "divided" in text for text in words(picture))


def test_the_microscope_marks_the_steps():
    """Three samples a rank in batches of two: a full step and a short one."""
    assert {"step", "0", "1"} <= set(words(assignment_plot(sample_table(STEPS), batch_size=2)))
    assert not {"step", "1"} & set(words(assignment_plot(sample_table(STEPS))))


def test_epochs_stand_side_by_side_where_their_numbers_can_be_read():
    for samples, is_beside in ((3, True), (24, False)):
        orders = {epoch: [list(range(samples))] for epoch in (0, 1)}
        titles = assignment_plot(sample_table(orders), batch_size=1).figure.findobj(Text)
        places = [title.get_position() for title in titles if title.get_text().startswith("epoch")]
        assert len(places) == 2 and (places[0][1] == places[1][1]) is is_beside


def test_a_part_of_an_epoch_has_no_dashed_boxes():
    """Dashed means that no rank gets the sample in the whole epoch, never `not yet`."""
    table = sample_table({"before": DEALT[1], "together": DEALT[1]})
    picture = owners_plot(table, 6, parts=["before"])
    all_boxes = boxes(picture)
    assert len([box for box in all_boxes if edge(box) == INK]) == 2  # 4 and 5 in "together"
    assert picture.alt.count("left out: 4, 5") == 1


def test_the_alt_texts_say_what_is_drawn():
    text = assignment_plot(sample_table(DEALT)).alt
    assert "rank 3 got 3, 7, 1" in text
    assert "before: sample 0 on rank 2 in epoch 0, sample 1 on rank 3 in epoch 0." in text
    text = owners_plot(sample_table(DEALT), 12).alt
    assert "given out twice: 0, 1; left out: 10, 11." in text
    assert "twice" not in owners_plot(sample_table({0: [[0], [1]]}), 2).alt


@pytest.mark.parametrize("columns", [3, 12, 40])
def test_the_notes_have_room(columns):
    """Nothing is cut off: every text lies inside the figure."""
    dealt = sample_table({0: [list(range(columns)), [0] * columns]})
    for picture in (assignment_plot(dealt), owners_plot(dealt, columns)):
        figure = picture.figure
        figure.draw_without_rendering()
        right = figure.get_figwidth() * figure.dpi
        texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
        assert max(text.get_window_extent().x1 for text in texts) <= right + 1


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: assignment_plot(sample_table({})), "no samples to draw"),
        (lambda: assignment_plot(sample_table({0: [range(41)]})), "41 samples do not fit"),
        (lambda: assignment_plot(sample_table({0: [[1]] * 9})), "9 ranks cannot be told apart"),
        (lambda: owners_plot(sample_table({0: [[7]]}), 7), "outside of 0 to 6"),
    ],
)
def test_what_cannot_be_drawn_is_said(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_the_committed_figure_is_what_the_code_draws(tmp_path):
    all_boxes = pinning_plot().save(tmp_path / "drawn.svg")
    assert all_boxes.read_text() == PINNING_FILE.read_text()


def test_the_figure_describes_itself():
    root = ET.parse(PINNING_FILE).getroot()
    description = root.find("{http://www.w3.org/2000/svg}desc").text
    assert description == PINNING_ALT
    assert {"batch", "ordinary\nmemory", "pinned\nmemory"} <= set(words(pinning_plot()))


# What the page says and no cell shows


def dealt_to(rank: int, ranks: int, count: int, **arguments) -> list[int]:
    """The samples of a rank in epoch 0, without shuffling."""
    return list(DistributedSampler(range(count), ranks, rank, shuffle=False, **arguments))


def test_the_two_drop_last_are_two_things():
    """The loader's drops a short batch, the sampler's drops samples; each works by itself."""
    sampler = DistributedSampler(range(10), 4, 0, shuffle=False)
    batches_of_loader = list(DataLoader(range(10), 2, sampler=sampler, drop_last=True))
    assert [batch.tolist() for batch in batches_of_loader] == [[0, 4]]  # 8 is left over
    sampler = DistributedSampler(range(11), 4, 0, shuffle=False, drop_last=True)
    loader = DataLoader(range(11), 3, sampler=sampler)
    assert [batch.tolist() for batch in loader] == [[0, 4]]  # a batch that is too short stays


def test_of_three_samples_on_four_ranks_one_is_a_double():
    assert [dealt_to(rank, 4, 3) for rank in range(4)] == [[0], [1], [2], [0]]


def test_looking_at_len_of_the_loader_shows_that_nothing_is_left():
    sampler = DistributedSampler(range(3), 4, 0, drop_last=True)
    assert len(DataLoader(range(3), sampler=sampler)) == 0


def test_dropping_samples_and_the_mean_of_means_are_no_cure_for_the_accuracy():
    right = [0, 0, *[1] * 17, 0, 0]  # 21 digits
    dropped = [right[i] for rank in range(2) for i in dealt_to(rank, 2, 21, drop_last=True)]
    assert sum(dropped) / len(dropped) != sum(right) / 21
    shares = [right[rank::2] for rank in range(2)]  # unequal: 11 and 10
    means = [sum(share) / len(share) for share in shares]
    assert sum(means) / 2 != pytest.approx(sum(right) / 21)
    assert round((9 / 11 + 8 / 10) / 2, 4) == 0.8091 and round(17 / 21, 4) == 0.8095


def test_join_can_stop_all_ranks_as_soon_as_one_has_nothing_left():
    with pytest.raises(RankFailed, match=r"exhausted (all )?inputs"):
        launch(steps_with_join, [2, 3], timeout=20, throw_on_early_termination=True)


@pytest.mark.parametrize("own_seed", [False, True])
def test_workers_of_ranks_with_one_seed_draw_the_same_numbers(own_seed):
    """torch's, NumPy's and Python's; the sampler deals the same cards either way."""
    of_ranks = launch(workers.traced_batches, own_seed)
    for kind in ("torch", "numpy", "python"):
        one, other = ([item[kind] for batch in rank for item in batch] for rank in of_ranks)
        assert (one == other) is not own_seed
    samples = [[item["sample"] for batch in rank for item in batch] for rank in of_ranks]
    assert samples == [list(DistributedSampler(range(16), 2, rank)) for rank in range(2)]


def test_a_batch_is_made_by_one_worker_with_one_thread_and_the_workers_take_turns():
    for rank in launch(workers.traced_batches, False):
        makers = [{item["process"] for item in batch} for batch in rank]
        assert all(len(one) == 1 for one in makers)
        assert makers[0] == makers[2] != makers[1] == makers[3]
        assert {item["threads"] for batch in rank for item in batch} == {1}


def test_set_epoch_works_with_workers_that_stay():
    expected = []
    for epoch in (0, 1):
        sampler = DistributedSampler(range(12), 2, 0)
        sampler.set_epoch(epoch)
        expected.append(list(sampler))
    assert launch(workers.epochs_of_persistent_workers)[0] == expected


def test_a_loader_warns_of_its_own_workers_and_knows_of_no_other_ranks():
    assert launch(workers.warnings_of_a_loader, 2, ranks=2) == [[], []]  # four workers, two cores
    for said in launch(workers.warnings_of_a_loader, 3, ranks=2):
        assert any("worker processes in total" in line for line in said)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="here the loader does pin")
def test_without_a_gpu_the_loader_warns_and_pins_nothing():
    with pytest.warns(UserWarning, match="no accelerator is found"):
        (batch,) = DataLoader(range(4), 4, pin_memory=True)
    assert not batch.is_pinned()
