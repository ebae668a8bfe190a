"""What the pages of chapter 04 show: their experiments and figures, and claims without a cell."""

import inspect
from itertools import pairwise

import pandas as pd
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, WeightedRandomSampler

from ddp_workbook import launch
from ddp_workbook.chapters.digits import DATA
from ddp_workbook.experiments.samplers import (
    evaluation,
    index_sharding,
    loader_workers,
    own_program,
    resuming,
    shuffling,
    uneven_inputs,
)
from manyranks import figures
from tests.workers import samplers_workers

# The core page


def test_shares_are_rounded_up_or_down_to_a_multiple_of_the_ranks():
    table = index_sharding.padding_table([10, 3, 8], ranks=4)
    assert table.loc[10].tolist() == [12, 2, 8, 2]
    assert table.loc[3].tolist() == [4, 1, 0, 3]
    assert table.loc[8].tolist() == [8, 0, 8, 0]


def test_without_set_epoch_the_same_samples_go_to_nobody_in_every_epoch():
    for set_epoch, orders_seen in ((False, 1), (True, 3)):
        table = index_sharding.assignment_table(
            10, ranks=4, epochs=3, drop_last=True, set_epoch=set_epoch
        )
        of_epochs = table.groupby("epoch")["sample"].agg(frozenset)
        assert of_epochs.str.len().tolist() == [8, 8, 8]
        assert of_epochs.nunique() == orders_seen


def test_a_loader_with_a_sampler_refuses_to_shuffle():
    sampler = DistributedSampler(range(10), 2, 0)
    with pytest.raises(ValueError, match="sampler option is mutually exclusive with shuffle"):
        DataLoader(range(10), sampler=sampler, shuffle=True)


def test_ranks_with_seeds_of_their_own_give_samples_out_twice_and_never():
    shares = [list(DistributedSampler(range(12), 2, rank, seed=rank)) for rank in (0, 1)]
    given = shares[0] + shares[1]
    assert len(given) == 12 and 12 - len(set(given)) > 0


@pytest.mark.push("claims of the pages that take long")
def test_the_loss_hides_a_missing_set_epoch_and_missing_shuffling_hides_in_what_is_printed():
    table = shuffling.losses_by_way(ranks=2)
    assert len(table) == 3 * shuffling.SEEDS * shuffling.EPOCHS
    means = table.groupby(["way", "epoch"])[["printed", "true"]].mean()
    true, printed = means["true"], means["printed"]
    assert 0.5 < true["without set_epoch", 8] / true["with set_epoch", 8] < 2
    assert true["shuffle=False"].min() > 2 and true["with set_epoch", 8] < 0.2
    assert printed["shuffle=False", 8] < 0.6 * printed["shuffle=False", 1]
    picture = shuffling.losses_plot(table)
    panels = picture.figure.axes
    assert [axes.get_ylabel() for axes in panels] == ["loss, logarithmic", ""]
    assert all(line.get_marker() != "None" for axes in panels for line in axes.lines)
    assert f"to {figures.number(true['shuffle=False', 8])}" in picture.alt


def test_the_names_at_the_ends_of_lines_stand_apart():
    """Also where two lines end at the same height."""
    values = {"with set_epoch": 0.1, "without set_epoch": 0.1, "shuffle=False": 1.0}
    rows = [
        {"way": way, "seed": 0, "epoch": epoch, "printed": value * epoch, "true": value * epoch}
        for way, value in values.items()
        for epoch in (1, 2)
    ]
    for axes in shuffling.losses_plot(pd.DataFrame(rows)).figure.axes:
        heights = {text.get_text(): text.get_position()[1] for text in axes.texts}
        named = sorted(heights[way] for way in values)
        assert min(above - below for below, above in pairwise(named)) > 0.07
        assert max(named) == heights["shuffle=False"]


@pytest.mark.parametrize("seed", range(shuffling.SEEDS))
def test_without_shuffling_an_epoch_ends_with_nine_for_every_digit(seed):
    """In one process: without shuffling, the two ranks' batches are neighbouring rows."""
    images, labels = map(torch.stack, zip(*shuffling.sorted_digits(seed), strict=True))
    torch.manual_seed(seed)
    model = evaluation.DigitsMLP()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    nines = []
    for _ in range(shuffling.EPOCHS):
        for rows in torch.arange(len(labels)).split(2 * shuffling.BATCH_SIZE):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
        nines.append((model(images).argmax(dim=1) == 9).sum())
    assert nines[0] == len(labels) and nines[-1] > 2 * (labels == 9).sum()


def test_the_padding_is_counted_and_the_chapters_accuracy_is_exact():
    torch.manual_seed(0)
    weights = evaluation.DigitsMLP().state_dict()
    digits = evaluation.digits_with_errors_first(weights)
    model = evaluation.DigitsMLP()
    model.load_state_dict(weights)
    right = model(digits.images).argmax(dim=1) == digits.labels
    assert len(digits) == 21 and right[:2].tolist() == [False, False]
    table = evaluation.evaluations(weights, digits, ranks=[1, 2])
    assert table["counted"].tolist() == [21, 22]
    assert table["right"].tolist() == [int(right.sum())] * 2
    assert table["exact accuracy"].tolist() == pytest.approx([right.float().mean().item()] * 2)


# Loading data


def test_every_argument_has_its_words():
    """A new torch may bring arguments; the page then says so, and this test asks for words."""
    assert list(inspect.signature(DataLoader).parameters) == list(loader_workers.LOADER)
    defaults = loader_workers.argument_table().set_index("argument")["default"]
    assert defaults["dataset"] == "(required)" and defaults["batch_size"] == "1"


def test_every_process_reads_the_whole_stream_unless_it_is_cut():
    table = loader_workers.stream_table(ranks=2, num_workers=2)
    assert table["times each"].tolist() == ["4", "2", "1"]
    assert table["samples that came"].tolist() == [96, 48, 24]
    assert (table["different samples"] == 24).all()


def test_a_stream_without_workers_is_cut_by_rank_alone():
    assert loader_workers.stream_table(ranks=2, num_workers=0)["times each"].tolist() == [
        "2",
        "1",
        "1",
    ]


def test_a_stream_cannot_be_shuffled():
    with pytest.raises(ValueError, match="expected unspecified shuffle option"):
        DataLoader(samplers_workers.Epochs(), shuffle=True)


def test_each_worker_of_a_stream_may_end_with_a_short_batch():
    for num_workers, rows in ((0, [4, 4, 2]), (2, [4, 4, 1, 1])):
        loader = DataLoader(samplers_workers.CutByWorker(), 4, num_workers=num_workers)
        assert [len(batch) for batch in loader] == rows


@pytest.mark.parametrize(("keep", "seen"), [(True, [0, 0, 0]), (False, [0, 1, 2])])
def test_workers_that_stay_do_not_see_a_changed_data_set(keep, seen):
    data, found = samplers_workers.Epochs(), []
    loader = DataLoader(data, batch_size=None, num_workers=1, persistent_workers=keep)
    for epoch in range(3):
        data.epoch = epoch
        found += list(loader)
    assert found == seen


@pytest.mark.push("claims of the pages that take long")
def test_a_worker_that_is_not_forked_is_in_no_process_group():
    said = launch(samplers_workers.rank_in_a_worker, "spawn", ranks=2)
    assert all("Default process group has not been initialized" in words for words in said)


def test_ranks_with_one_seed_get_the_same_random_numbers():
    """Two ranks with two workers each; each batch of two is made by one worker."""
    same, own = (
        loader_workers.random_numbers(loader_workers.worker_table(s)) for s in ([0, 0], [1, 2])
    )
    assert same.loc[0].tolist() == same.loc[1].tolist()
    assert not set(own.loc[0]) & set(own.loc[1])


def timings() -> pd.DataFrame:
    """As epoch_times returns them: two kinds, two ways, three epochs."""
    rows = [
        (kind, name, number, seconds + number / 100)
        for kind, seconds in ((loader_workers.WAITING, 0.1), (loader_workers.COMPUTING, 0.2))
        for name in (loader_workers.NO_WORKERS, "num_workers=1, kept")
        for number in range(3)
    ]
    return pd.DataFrame(rows, columns=["kind", "candidate", "round", "seconds"])


def test_the_picture_of_loading_shows_every_epoch_and_says_how_many():
    picture = loader_workers.loading_plot(timings(), cores=2, dashed=120)
    lines = [line for axes in picture.figure.axes for line in axes.lines]
    assert sum(len(line.get_xdata()) for line in lines if line.get_marker() == "o") == 12
    assert [line.get_xdata()[0] for line in lines if line.get_marker() == "None"] == [120, 120]
    words = "median of 3 epochs; dot: one epoch; dashed: 120 ms; 2 cores"
    assert words in picture.figure._supxlabel.get_text()
    assert "loading that waits: num_workers=0 110; num_workers=1, kept 110" in picture.alt


@pytest.mark.push("claims of the pages that take long")
def test_an_epoch_without_workers_takes_its_samples_and_its_steps():
    """One round of all ways."""
    table = loader_workers.epoch_times(rounds=1)
    assert len(table) == 8
    waiting = table[table["kind"] == loader_workers.WAITING].set_index("candidate")["seconds"]
    assert (
        waiting[loader_workers.NO_WORKERS]
        >= 16 * loader_workers.SAMPLE_SECONDS + 4 * loader_workers.STEP_SECONDS
    )


# Uneven work


def test_join_makes_two_more_all_reduces_a_step():
    sent = uneven_inputs.all_reduces(batches=5)
    assert sent == {"without Join": 5, "with Join": 5 + 2 * 5 + 2}  # two when the last is done


def test_without_join_a_rank_averages_with_the_next_epoch_of_another():
    """Gradients are 1 in the first epoch and 11 in the second, which rank 0 enters a step early."""
    rank_0, rank_1 = launch(samplers_workers.gradients_of_two_epochs, [(2, 2), (3, 1)], ranks=2)
    assert rank_0 == [1, 1, 6, 11] and rank_1 == [1, 1, 6, 11]


def draw_of_rank(rank: int, ranks: int, epoch: int, weights: torch.Tensor, monkeypatch) -> list:
    """What DistributedWeightedSampler gives a rank; no processes are needed."""
    monkeypatch.setattr(dist, "get_world_size", lambda: ranks)
    monkeypatch.setattr(dist, "get_rank", lambda: rank)
    sampler = uneven_inputs.DistributedWeightedSampler(weights)
    sampler.set_epoch(epoch)
    assert len(list(sampler)) == len(sampler)
    return list(sampler)


def test_the_weighted_ranks_share_the_draw_of_one_process(monkeypatch):
    weights = torch.arange(12.0)
    for epoch in (0, 1):
        alone = draw_of_rank(0, 1, epoch, weights, monkeypatch)
        shares = [draw_of_rank(rank, 3, epoch, weights, monkeypatch) for rank in range(3)]
        assert [shares[i % 3][i // 3] for i in range(12)] == alone
        assert 0 not in alone  # its weight is 0
    other = draw_of_rank(0, 1, 0, weights, monkeypatch)
    assert other != alone


def test_a_rare_class_is_drawn_as_often_as_the_others():
    table = uneven_inputs.classes_by_rank(ranks=4)
    counts = table.groupby(["sampler", "class"])["samples"].sum()
    assert counts["DistributedSampler", 8] == 10
    assert counts["DistributedWeightedSampler"].between(100, 220).all()
    by_rank = table[(table["sampler"] != "DistributedSampler") & (table["class"] == 8)]["samples"]
    assert by_rank.min() > 15
    picture = uneven_inputs.classes_plot(table, rare=8)
    assert "DistributedSampler: 10 samples of the digit 8" in picture.alt
    assert picture.axes.get_xlabel() == "digit"


def test_four_in_ten_of_the_other_digits_are_not_drawn(monkeypatch):
    labels = uneven_inputs.rare_digits()
    drawn = set(draw_of_rank(0, 1, 0, uneven_inputs.balancing_weights(labels), monkeypatch))
    others = set((labels != 8).nonzero().flatten().tolist())
    assert 0.35 < len(others - drawn) / len(others) < 0.45


def test_weighted_random_samplers_with_one_seed_draw_the_same_on_all_ranks():
    draws = []
    for _ in range(2):  # two ranks, each with its own sampler
        torch.manual_seed(0)
        draws.append(list(WeightedRandomSampler([1.0, 2.0, 3.0], 20)))
    assert draws[0] == draws[1]


def test_equally_many_texts_are_uneven_work():
    table = uneven_inputs.words_by_rank(uneven_inputs.text_lengths(32), ranks=4)
    assert table["texts"].map(len).tolist() == [8] * 4
    totals = table["words"].map(sum)
    assert totals.max() > 1.1 * totals.mean()
    picture = uneven_inputs.work_plot(table)
    assert f"rank 1: {totals[1]}" in picture.alt
    assert f"mean is {totals.mean():.0f}" in picture.alt
    assert "words in one step" in picture.axes.get_xlabel()


# Resuming


def test_the_sampler_runs_ahead_of_the_loop_with_workers():
    assert launch(resuming.samples_before_first_batch, 2, ranks=2) == [
        10,
        10,
    ]  # (2 · 2 + 1) batches


# Your own program


def test_a_table_of_the_readers_own_is_read_by_path(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("kind,a,b\nred,1,5\nblue,3,5\nred,5,5\n")
    table = own_program.TableDataset(path, "kind")
    assert table.classes == ["blue", "red"] and table.labels.tolist() == [1, 0, 1]
    assert table.features[:, 0].tolist() == [-1, 0, 1] and not table.features[:, 1].any()
    assert own_program.make_model(table)(table.features).shape == (3, 2)


def test_the_loss_of_each_batch_does_not_depend_on_the_number_of_ranks():
    table = own_program.losses_on_ranks(DATA, "label", ranks=(1, 3), epochs=1, batch_size=96)
    wide = table.pivot(index="step", columns="ranks", values="loss")
    assert len(wide) == 1797 // 96
    assert wide[1].to_numpy() == pytest.approx(wide[3].to_numpy(), abs=1e-4)
    assert wide[1].iloc[-1] < 0.7 * wide[1].iloc[0]
    picture = own_program.ranks_plot(table)
    assert "1 rank from" in picture.alt and len(picture.axes.lines) == 2


def test_the_loop_of_one_process_learns():
    found = own_program.train_alone(DATA, "label", epochs=1, batch_size=96)
    assert len(found) == 19 and found[-1] < 0.7 * found[0]


@pytest.mark.push("claims of the pages that take long")
def test_a_dealing_to_play_with_counts_what_came_again_and_what_never():
    play = index_sharding.play_index_sharding()
    assert play.answer.words.count("12 given out, 2 repeated; left out: none") == 2
    play.controls["drop_last"].value, play.controls["samples"].value = True, 11
    play.wait()
    assert "8 given out, 0 repeated; left out: " in play.answer.words
    play.controls["samples"].value = 3
    play.wait()
    assert play.answer.error is None
    assert "No rank got a sample. epoch 0: 0 given out" in play.answer.words
