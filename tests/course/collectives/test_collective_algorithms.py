"""An all-reduce by ring, by tree and through rank 0: right sums, and the messages of each."""

import re

import pytest

from ddp_workbook import launch
from ddp_workbook.experiments.collectives import algorithms
from tests.workers import collectives_workers as workers

pytestmark = pytest.mark.push("claims of further pages")

ROUNDS = {algorithms.RING: 8, algorithms.TREE: 6, algorithms.STAR: 8}  # for five ranks


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("way", algorithms.WAYS)
def test_every_rank_gets_the_sum(way, ranks):
    """Of whole tensors, also where they cannot be cut into equal pieces."""
    results = launch(workers.all_reduce_by, way, 256 * 7 + 1, ranks=ranks)
    total = ranks * (ranks + 1) / 2
    assert results == [[total, total]] * ranks


@pytest.mark.parametrize("way", algorithms.WAYS)
def test_the_messages_are_those_of_the_rounds(way):
    timings = launch(algorithms.all_reduce, way, 1, ranks=5)
    assert [len(one.receivers) for one in timings] == [ROUNDS[way]] * 5
    for number, messages in enumerate(algorithms.WAYS[way](5)):
        sent = {(rank, other) for rank in range(5) for other in timings[rank].receivers[number]}
        assert sent == {(one.sender, one.receiver) for one in messages}


def test_the_formula_counts_rounds_and_bytes():
    ms, mb_a_second = 1e-3, 1e6
    by = {
        way: algorithms.seconds_by_formula(way, 4, 1e6, ms, mb_a_second) for way in algorithms.WAYS
    }
    assert by[algorithms.RING] == pytest.approx(6 * (0.001 + 0.25))
    assert by[algorithms.TREE] == pytest.approx(4 * (0.001 + 1))
    assert by[algorithms.STAR] == pytest.approx(6 * (0.001 + 1))


def test_a_picture_to_play_with_has_each_message_in_words():
    play = algorithms.play_all_reduce()
    assert "ring: 6 rounds; the busiest rank sends 1.50 S" in play.answer.words
    play.controls["way"].value = algorithms.STAR
    play.wait()
    assert "everyone to rank 0: 6 rounds; the busiest rank sends 3.00 S" in play.answer.words
    assert "Round 3: 3 to 0. Round 4: 0 to 1." in play.answer.words
    times = re.findall(r"([\d.]+) ms by the formula, ([\d.]+) ms measured", play.answer.words)
    assert len(times) == 3 and all(float(time) > 0 for pair in times for time in pair)
