"""Chapter 05's further pages: times and costs, messages between two ranks, the ring, mistakes."""

import math
import re

import nbformat
import pandas as pd
import pytest
import torch

from ddp_workbook import launch
from ddp_workbook.experiments.collectives import (
    before_and_after,
    completion,
    ladder,
    message_times,
    messages,
    objects,
    overlap,
    ring,
)
from ddp_workbook.page.pages import all_pages
from manyranks.errors import RankFailed
from manyranks.figures.slider import WIDGET, stepper
from manyranks.figures.style import Picture
from tests.hang_proofs import hang_of
from tests.workers import collectives_workers as workers

PAGES = [path for path in all_pages() if path.stem.startswith("05_")]

pytestmark = pytest.mark.push("claims of further pages")

# The ring


def test_the_ring_does_not_deadlock_with_large_tensors():
    """32 MB: far more than any buffer between two ranks."""
    assert launch(ring.ring_worker, torch.ones(8_000_000), ranks=3, timeout=60) == [3, 3, 3]


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_frames_go_from_own_numbers_to_the_sum(ranks):
    """2 (N-1) rounds; in round k rank r sends piece r - k + 1.

    After N-1 rounds rank r has the whole sum of piece r + 1.
    """
    frames = ring.ring_frames(launch(ring.frames_worker, ranks=ranks))
    place = sum(10**rank for rank in range(ranks))
    total = [n * place for n in range(1, ranks + 1)]
    assert len(frames) == 1 + 2 * (ranks - 1)
    for number, frame in enumerate(frames[1:]):
        assert frame.pieces == [(rank - number) % ranks for rank in range(ranks)]
    assert frames[-1].rows == [total] * ranks
    for rank, row in enumerate(frames[ranks - 1].rows):
        piece = (rank + 1) % ranks
        assert [number == whole for number, whole in zip(row, total, strict=True)].count(True) == 1
        assert row[piece] == total[piece]
    assert ring.ring_frame_plot(frames, 0).alt.startswith("Start. rank 0 1")


# The slider


def some_pictures(count: int = 3) -> list:
    moved = [([n], [n + 1]) for n in range(count)]
    return [
        Picture(before_and_after.collectives_plot({"": [one]}).figure, f"Frame {one}")
        for one in moved
    ]


def test_the_slider_shows_one_frame_after_the_other():
    """The frame's own alt text goes with it; the number may begin with another than 0."""
    made = stepper(listed := some_pictures(), "round", first=11)
    assert (made.slider.min, made.slider.max, made.slider.description) == (11, 13, "round")
    for number, picture in enumerate(listed, start=11):
        made.slider.value = number
        assert made.frame.value == picture._repr_html_()


def test_without_widgets_all_frames_are_there():
    """The HTML beside the widget holds every frame with its alt text."""
    bundle = stepper(some_pictures())._repr_mimebundle_()
    assert WIDGET in bundle
    assert bundle["text/html"].count("<img ") == 3 == bundle["text/plain"].count("Frame")
    assert bundle["text/html"].count('<input type="radio"') == 3


# Time against size


def timings(alpha=1e-4, beta=1e-9, sizes=(64, 4096, 2**20, 2**22), ranks=2) -> pd.DataFrame:
    rows = [
        ("all_reduce", ranks, size, n, (alpha + beta * size) * (1 + 0.3 * (n > 1)))
        for size in sizes
        for n in (1, 2, 3)
    ]
    return pd.DataFrame(rows, columns=message_times.COLUMNS)


def test_the_fit_finds_latency_and_bandwidth():
    """From the fastest rounds, exactly where the times lie on a line; a ring marks the knee."""
    lines = message_times.fit(timings())
    line = lines.iloc[0]
    assert line["latency"] == pytest.approx(1e-4) and line["bandwidth"] == pytest.approx(1e9)
    assert line["knee"] == pytest.approx(1e5)
    picture = message_times.alpha_beta_plot(timings(), lines)
    knee = next(one for one in picture.axes.lines if one.get_markersize() == 14)
    assert list(knee.get_xdata()) == [line["knee"]]
    assert list(knee.get_ydata()) == pytest.approx([0.2])
    assert "knee at 100,000 bytes" in picture.alt


def test_neither_part_of_the_line_is_negative():
    """Times that fall with the size, and times through nothing."""
    falling = timings(alpha=1e-3, beta=-1e-11)
    assert message_times.fit(falling).iloc[0]["bandwidth"] == math.inf
    steep = timings(alpha=-1e-9, beta=1e-9)
    assert message_times.fit(steep).iloc[0]["latency"] >= 0
    for frame in (falling, steep):
        assert message_times.alpha_beta_plot(frame, message_times.fit(frame)).svg


def test_times_are_measured_on_ranks():
    """A row for each op, number of ranks, size and round; large sizes take longer than small."""
    times = message_times.time_against_size(ranks=(1, 2), sizes=(256, 2**22), rounds=5)
    assert len(times) == 3 * 2 * 2 * 5 and list(times) == message_times.COLUMNS
    assert (times["seconds"] > 0).all()
    fastest = times[times["ranks"] == 2].groupby(["op", "bytes"])["seconds"].min().unstack()
    assert fastest[2**22].sum() > fastest[256].sum()
    assert len(message_times.alpha_beta_plot(times, message_times.fit(times)).figure.axes) == 3


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"sizes": (24,)}], ids=str)
def test_what_cannot_be_measured_is_refused(wrong):
    """Before any rank is started."""
    with pytest.raises(ValueError, match=r"must be 1 or more|24 is not a multiple of 16"):
        message_times.time_against_size(**wrong)
    with pytest.raises(ValueError, match="needs two sizes"):  # two unknowns, two points
        message_times.fit(timings(sizes=(64,)))


def test_the_bus_bandwidth_has_the_factors_of_nccl_tests():
    (bus,) = message_times.bandwidths(timings(ranks=4)).to_dict("records")
    assert float(bus["factor"]) == 1.5
    assert int(bus["busbw in MB/s"]) == pytest.approx(1.5 * int(bus["algbw in MB/s"]), rel=1e-2)


def test_many_small_all_reduces_take_longer_than_one():
    """By the line and in fact: 256 latencies instead of one."""
    by_line, measured = message_times.slowdown_by_pieces(message_times.fit(timings()), pieces=256)
    assert by_line == round(256 * (1e-4 + 4096e-9) / (1e-4 + 2**20 * 1e-9))
    assert measured > 3


def test_a_faster_link_in_a_node_has_a_later_knee():
    """What the page says of NVLink: the smallest latency, and the largest knee."""
    table = message_times.links().set_index("link")
    knee, latency = table["knee in KiB"], table["latency in µs"].astype(float)
    assert "NVLink" in knee.idxmax() and latency["NVLink 4"] == latency.min()
    assert knee["NVLink 3"] * 2**10 >= 1e6


# A slow network, and what is hidden behind it


def test_work_hides_an_all_reduce_on_a_slow_network():
    """Waiting comes first in line, and last when it is overlapped; it is shorter then."""
    ways = overlap.both_ways()
    for rank in (0, 1):
        (waits_first, wait, _), (works_next, *_) = ways["in line"][rank]
        (works_first, *_), (waits_next, wait_start, wait_end) = ways["overlapped"][rank]
        assert (waits_first, works_next) == ("waits", "works") == (waits_next, works_first)
        assert wait_end - wait_start < ways["in line"][rank][0][2] - wait
    assert "in line: rank 0: waits from" in overlap.overlap_plot(ways).alt


def test_all_rungs_add_up_the_same_gradients():
    """One per parameter, one vector, buckets: each leaves the sum of both ranks' gradients."""
    for sums in launch(workers.by_each_rung, ranks=2):
        assert sums == [[3.0, 6.0, 9.0]] * 3


def test_the_ladder_times_all_rungs_on_both_networks():
    """The slow network makes 64 messages slower than one."""
    times = ladder.time_ladder(rounds=1)
    assert list(times["rung"]) == [*ladder.RUNGS, *ladder.RUNGS]
    seconds = times.set_index(["network", "rung"])["seconds"]
    assert seconds[ladder.PRETEND, "one per parameter tensor"] > 64 * 0.5e-3
    words = ladder.ladder_plot(times).alt
    assert all(rung in words for rung in ladder.RUNGS)


@pytest.mark.parametrize(("ddp", "disturbed"), [(1.1, False), (0.9, True)])
def test_the_picture_says_so_if_communication_seems_to_save_time(ddp, disturbed):
    """Only noise can make a way faster than no communication."""
    rows = [("memory", "no communication", 1, 1.0), ("memory", "DDP", 1, ddp)]
    times = pd.DataFrame(rows, columns=["network", "rung", "round", "seconds"])
    picture = ladder.ladder_plot(times)
    assert (picture.figure.get_suptitle() == ladder.NOISE_WARNING) is disturbed
    assert picture.alt.endswith(ladder.NOISE_WARNING) is disturbed


def test_before_wait_the_sum_is_not_finished():
    """Rank 1 comes late, so no other rank's first copy can hold the sum."""
    for rank, (before, (early, late)) in enumerate(launch(completion.read_before_wait, ranks=4)):
        assert late.tolist() == [1111, 2222, 3333, 4444]
        assert early.tolist() != late.tolist() or rank == completion.LATE_RANK
        assert before.tolist() == [n * 10**rank for n in (1, 2, 3, 4)]


# Messages between two ranks


def test_two_ranks_that_both_send_first_hang(count=1_000_000):
    """Also with small tensors, as on the page; the report says so, and the other order works."""
    assert "Each send needs a recv" in str(hang_of(workers.both_send_first, count))
    assert launch(workers.one_receives_first, count, ranks=2) == [10, 1]


def test_a_tree_takes_log_rounds_and_a_star_and_a_chain_do_not():
    """Sorted from what was really sent; the picture says the same."""
    ways = messages.rounds_of_ways("star", "chain", "tree", ranks=6)
    counts = {way: len(found) for way, found in ways.items()}
    assert counts == {"star": 5, "chain": 5, "tree": 3}
    words = messages.rounds_plot(ways).alt
    assert "The tree needs 3 rounds" in words and "round 5: 4 to 5" in words


# Objects and mistakes


def test_an_object_takes_two_collectives_and_a_number_one():
    """First the lengths, then the bytes."""
    wire = objects.on_the_wire()
    assert list(wire["op"]) == ["all_gather", "all_gather", "all_reduce"]
    assert list(wire["way"]) == ["as an object", "as an object", "as a number"]


def test_shapes_that_differ_end_in_different_ways():
    """4 and 5 numbers abort; with 2 and 3 rank 0 returns and rank 1 finds it gone."""
    with pytest.raises(RankFailed, match=r"Rank 0 \(of 2\) was ended by SIGABRT"):
        launch(workers.other_shapes, 4, 5, ranks=2, timeout=20)
    with pytest.raises(RankFailed, match="rank 0 had already returned"):
        launch(workers.other_shapes, 2, 3, ranks=2, timeout=20)


def test_in_a_group_the_source_is_a_global_rank():
    """The source of a broadcast in the group of ranks 2 and 3 is 2 or 3, not 0."""
    for refused, arrived, first in launch(workers.in_the_second_pair, ranks=4)[2:]:
        assert "Global rank 0 is not part of group" in refused and (arrived, first) == (100, 2)


def test_the_table_says_which_mistakes_pass_and_what_detail_says():
    """Dtypes pass without DETAIL, a rank outside of the group always."""
    table = objects.error_table().set_index("mistake")
    as_it_is, detail = table["what you read"], table["with DETAIL"]
    assert as_it_is["dtypes differ"].startswith("no error")
    assert "`src` and `dst` are global ranks" in as_it_is["source not in the group"]
    for words in (as_it_is, detail):
        outside = words["rank not in the group"]
        assert "[10.0, 20.0]" in outside and "does not belong to the given group" in outside
    assert re.match("Tensor shapes: (4vs 5|5vs 4)", detail["shapes differ"])
    assert re.match("Tensor dtypes: (Floatvs Int|Intvs Float)", detail["dtypes differ"])
    assert "invalid root rank: 7" in detail["no such source"]


# The pages


@pytest.mark.parametrize(
    "page", [path for path in all_pages() if path.stem.startswith("05_")], ids=lambda p: p.stem
)
def test_a_page_does_not_hold_the_solutions_of_its_exercises(page):
    """isend stands on the page that teaches it; no page shows the ring's or the tree's source."""
    notebook = nbformat.read(page, as_version=4)
    cells = [c for c in notebook.cells if c.cell_type == "code" and not c.id.startswith("ex-")]
    text = "\n".join(cell.source for cell in cells)
    for word in ("show_code(ring", "tree_broadcast", "ring_all_reduce)", "getsource"):
        assert word not in text
    assert not re.search(r"\bsolution\(", text)
