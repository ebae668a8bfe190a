"""An all-reduce by ring, by tree and through rank 0: right sums, and the messages of each."""

import re
from itertools import chain

import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Annotation

from ddp_workbook import launch
from ddp_workbook.experiments.collectives import algorithms
from manyranks.rank_colours import rank_colour
from tests.picture_text import words
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
    assert [len(one.sent) for one in timings] == [ROUNDS[way]] * 5
    for number, messages in enumerate(algorithms.WAYS[way](5)):
        sent = chain.from_iterable(timing.sent[number] for timing in timings)
        assert sorted(sent) == sorted(messages)


def test_the_formula_counts_rounds_and_bytes():
    link = algorithms.Link(latency=1e-3, bandwidth=1e6)
    by = {way: algorithms.seconds_by_formula(way, 4, 1e6, link) for way in algorithms.WAYS}
    assert by[algorithms.RING] == pytest.approx(6 * (0.001 + 0.25))
    assert by[algorithms.TREE] == pytest.approx(4 * (0.001 + 1))
    assert by[algorithms.STAR] == pytest.approx(6 * (0.001 + 1))


@pytest.mark.parametrize(
    ("ranks", "kib", "quickest"),
    [
        (8, 4096, algorithms.RING),
        (8, 1024, algorithms.RING),
        (8, 256, algorithms.TREE),
        (8, 16, algorithms.TREE),
        (8, 1, algorithms.TREE),
        (4, 256, algorithms.RING),
    ],
)
def test_in_a_cluster_the_ring_wins_for_large_tensors_and_the_tree_for_small(ranks, kib, quickest):
    """What the page says of the sizes that its player has."""
    (seconds,) = algorithms.times_of(timing_of(None), ranks, kib).values()
    assert min(seconds, key=seconds.get) == quickest


@pytest.mark.parametrize(
    ("small", "large"), [(249e-6, 249e-6), (249e-6, 200e-6), (0.02, 0.05), (0.0, 0.001)]
)
def test_no_link_is_made_of_messages_that_other_programs_have_held_up(small, large):
    """A large message as quick as a small one, and a small one of 20 ms."""
    assert algorithms.measured_link(small, large) is None


def test_a_link_is_what_two_messages_say():
    latency, bandwidth = algorithms.measured_link(1e-4, 1e-4 + 4e-3)
    assert latency == 1e-4 and bandwidth == pytest.approx(algorithms.LARGE_KIB * 1024 / 4e-3)


def timing_of(link, **seconds):
    sent = [[message for message in of if message.sender == 0] for of in algorithms.ring(2)]
    return algorithms.AllReduceTiming(sent, seconds or dict.fromkeys(algorithms.WAYS, 1.0), link)


def test_a_machine_that_is_too_busy_to_measure_shows_the_formula_alone():
    picture = algorithms.messages_plot([timing_of(None)] * 2, ranks=2, way=algorithms.RING, kib=256)
    assert "too busy to measure" in picture.alt and "in a cluster, by the formula" in picture.alt
    assert "here" not in picture.alt and "1,000 ms" not in picture.alt
    assert not any("this machine," in text for text in words(picture))


def test_the_sentence_about_the_measurement_follows_it(monkeypatch):
    monkeypatch.setattr(algorithms, "usable_cores", lambda: 4)
    link = algorithms.Link(1e-4, 1e9)
    timing = timing_of(link, ring=3.0, tree=2.0, star=4.0)
    assert algorithms.measurement_in_words(timing, 4) == "Measured here, the quickest was: tree."
    busy = algorithms.measurement_in_words(timing, 8)
    assert busy.endswith("8 ranks share 4 cores, so the messages of a round take turns.")


def test_the_messages_of_rank_0_stand_out():
    """Of the ring on four ranks: 24 arrows, 6 of them dark, with the pieces that they carry."""
    timings = [
        algorithms.AllReduceTiming(
            [[one for one in of if one.sender == rank] for of in algorithms.ring(4)],
            dict.fromkeys(algorithms.WAYS, 1.0),
            None,
        )
        for rank in range(4)
    ]
    picture = algorithms.messages_plot(timings, ranks=4, way=algorithms.RING, kib=256)
    arrows = [one.arrow_patch for one in picture.axes.texts if isinstance(one, Annotation)]
    assert len(arrows) == 24 and all(isinstance(one, FancyArrowPatch) for one in arrows)
    assert sum(one.get_edgecolor() == to_rgba(rank_colour(0)) for one in arrows) == 6
    assert [text for text in words(picture) if text in ("p0", "p1", "p2", "p3")] == [
        "p0", "p3", "p2", "p1", "p0", "p3",
    ]  # fmt: skip
    assert {"reduce_scatter", "all_gather"} <= set(words(picture))


def test_a_picture_to_play_with_has_each_message_in_words():
    """It begins with what its question asks for: eight ranks and 4 MiB."""
    play = algorithms.play_all_reduce()
    assert {name: play.controls[name].value for name in ("ranks", "kib")} == {
        "ranks": 8,
        "kib": 4096,
    }
    assert "ring: 14 rounds; the busiest rank sends 1.75 S" in play.answer.words
    play.controls["way"].value = algorithms.STAR
    play.controls["ranks"].value = 4
    play.wait()
    assert "everyone to rank 0: 6 rounds; the busiest rank sends 3.00 S" in play.answer.words
    assert "Round 3: 3 to 0. Round 4: 0 to 1." in play.answer.words
    (times,) = re.findall(r"in a cluster, by the formula: (.*?)\. ", play.answer.words)
    assert times == "ring 0.312 ms, tree 0.711 ms, everyone to rank 0 1.07 ms"
