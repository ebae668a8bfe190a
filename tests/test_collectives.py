"""Chapter 05: its worker, its pictures and measurements, and what its notebook says."""

import math
import re
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import torch
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from ddp_workbook import launch
from ddp_workbook.chapters import collectives
from ddp_workbook.digits import DigitsMLP
from ddp_workbook.errors import RankFailed, RanksHung
from ddp_workbook.experiments import collectives as experiments
from ddp_workbook.figures import collectives as figures
from ddp_workbook.figures import holdings
from ddp_workbook.figures.stepper import WIDGET, stepper
from ddp_workbook.figures.style import show
from ddp_workbook.recording.collectives import record_collectives
from tests.workers import collectives_workers as workers

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "05_collectives.ipynb"
RANKS = [1, 2, 3, 4]


# The worker


@pytest.mark.parametrize("ranks", RANKS)
def test_the_two_halves_are_an_all_reduce_for_any_length(ranks):
    """Lengths that the world size divides, and others, below and above it; another dtype too."""
    lengths = [1, 2, 3, 4, 5, 8, 9, 13]
    place = sum(10**rank for rank in range(ranks))
    for vectors in launch(workers.in_two_halves, lengths, ranks=ranks):
        for length, vector in zip([*lengths, lengths[-1]], vectors, strict=True):
            assert vector.tolist() == [place * n for n in range(1, length + 1)]
        assert vectors[-1].dtype == torch.float64


def test_a_step_sends_two_collectives_and_nothing_else():
    """reduce_scatter of the padded vector, all_gather of a rank's piece of it."""
    wire = record_collectives(collectives.train, ranks=4, epochs=1)
    assert (
        len(DigitsMLP().state_dict()) and sum(p.numel() for p in DigitsMLP().parameters()) == 4810
    )
    for _, mine in wire.groupby("rank"):
        assert list(mine["op"]) == ["reduce_scatter", "all_gather"] * 29 + ["all_reduce", "barrier"]
        assert list(mine["bytes"])[:2] == [4 * 4812, 4 * 1203]


# What ranks hold, and where it came from

BEFORE = [[[1, 2]], [[10, 20]], [[100, 200]]]


def test_a_number_knows_the_ranks_that_are_in_it():
    """Own numbers, sums over some ranks at the same place, and nothing else."""
    known = holdings.origins(BEFORE)
    assert known[10] == {1} and known[22] == {0, 1} and known[101] == {0, 2}
    assert known[222] == {0, 1, 2}
    assert 12 not in known  # 10 + 2 stand at different places


def test_a_number_that_two_ways_lead_to_has_no_origin_but_a_rank_s_own_has():
    """3 = 1 + 2 is also rank 2's own; 5 = 1 + 4 = 2 + 3."""
    known = holdings.origins([[[1]], [[2]], [[3]], [[4]]])
    assert known[3] == {2} and 5 not in known and known[10] == {0, 1, 2, 3}
    assert 7 not in holdings.origins([[[7]], [[7]]])


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (None, []),
        (3, [[3]]),
        ([1, 2], [[1, 2]]),
        (torch.tensor([[1, 2], [3, 4]]), [[1, 2, 3, 4]]),
        ([torch.tensor([1.0]), torch.tensor([2.0, 3.0])], [[1], [2, 3]]),
        ((torch.tensor(1), [torch.tensor(2)]), [[1], [2]]),
        ([], []),
    ],
    ids=str,
)
def test_what_a_rank_may_hold(value, row):
    """Tensors, numbers, lists of them, nothing."""
    assert holdings.held(value) == row


def test_numbers_as_words():
    """As many digits as a box has room for."""
    numbers = [3.0, 277.75, 1e9, -2, 0.1 + 0.2, math.nan, math.inf]
    assert [holdings.number_text(n) for n in numbers] == [
        "3",
        "277.75",
        "1e+09",
        "-2",
        "0.3",
        "nan",
        "inf",
    ]


def test_the_alt_text_holds_every_number():
    """Readers who cannot see the picture get the same values."""
    text = figures.alt_text_of_moves(
        [(torch.tensor([1, 2]), None), (None, [torch.tensor(1), 2])], "gather"
    )
    assert text == "gather. rank 0: 1 2 before, nothing after; rank 1: nothing before, 1 | 2 after."


# The pictures


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def boxes(figure) -> list[Rectangle]:
    return [
        box
        for box in figure.axes[0].patches
        if isinstance(box, Rectangle) and box.get_height() == figures.HEIGHT
    ]


def test_a_picture_shows_each_number_and_each_rank():
    """Before and after, empty hands too."""
    moved = [([1, 2], [11, 22]), ([10, 20], None)]
    figure = figures.collective_plot(moved, "reduce to rank 0")
    shown = texts(figure)
    for word in (
        "1",
        "2",
        "10",
        "20",
        "11",
        "22",
        "nothing",
        "rank 0",
        "rank 1",
        "before",
        "after",
    ):
        assert word in shown
    show(figure, alt=figures.alt_text_of_moves(moved))


def test_all_collectives_are_drawn_in_one_style():
    """Boxes of one size at the same places, whatever the number of tensors and ranks."""
    four = [([1, 2, 3, 4], [5]), ([10, 20, 30, 40], [6])]
    one = [(1, [torch.tensor([n]) for n in range(2)])] * 3
    drawn = [figures.collective_plot(moved, "x") for moved in (four, one)]
    assert len({(box.get_width(), box.get_x()) for f in drawn for box in boxes(f)[:1]}) == 1
    assert len({figure.get_figwidth() for figure in drawn}) == 1


def test_colours_follow_the_numbers():
    """A number from rank 1 has rank 1's colour, a sum is white, an unknown number grey."""
    figure = figures.collective_plot([([1], [10, 11, 5]), ([10], [10, 11, 5])])
    fills = [box.get_facecolor() for box in boxes(figure)]
    before, after = fills[:2], fills[2:]
    assert after[0] == before[1] != before[0]
    assert after[1] == (1, 1, 1, 1) and len(set(after[2][:3])) == 1 != after[2][0]


def test_more_ranks_than_a_picture_can_show_are_refused():
    """Each rank needs a colour of its own."""
    moved = [(rank, rank) for rank in range(9)]
    figures.collective_plot(moved[:8])
    with pytest.raises(ValueError, match="up to 8 ranks, these are 9"):
        figures.collective_plot(moved)


def test_more_numbers_than_a_picture_can_show_are_refused():
    """Rather than drawn too small to read."""
    with pytest.raises(ValueError, match="draw smaller tensors"):
        figures.collective_plot([(torch.arange(1000), 1)])


def test_the_waiting_picture():
    """Rank 0 works for 0.1 s, rank 1 waits half of that."""
    figure = figures.waiting_plot([(0.1, 0.1), (0.05, 0.1)])
    assert [bar.get_width() for bar in figure.axes[0].patches] == [100, 0, 50, 50]


# The ring


def test_the_ring_does_not_deadlock_with_large_tensors():
    """32 MB: far more than any buffer between two ranks."""
    assert launch(experiments.ring_worker, 8_000_000, ranks=3, timeout=60) == [3, 3, 3]


@pytest.mark.parametrize("ranks", [2, 3, 4, 6])
def test_the_ring_sends_pieces_to_neighbours_alone(ranks):
    """2 (N-1) sends of S / N bytes from each rank: 2 (N-1) / N * S."""
    wire = record_collectives(experiments.ring_worker, 12_000, ranks=ranks)
    sends = wire[wire["op"] == "send"]
    assert set(wire["op"]) == {"send", "recv"}
    assert (sends["peer"] == (sends["rank"] + 1) % ranks).all()
    assert list(sends.groupby("rank")["bytes"].sum()) == [2 * (ranks - 1) / ranks * 48_000] * ranks


@pytest.mark.parametrize("ranks", [1, 2, 4, 6])
def test_the_frames_go_from_own_numbers_to_the_sum(ranks):
    """2 (N-1) rounds; in round k rank r sends piece r - k + 1.

    After N-1 rounds rank r has the whole sum of piece r + 1.
    """
    frames = figures.ring_frames(launch(experiments.frames_worker, ranks=ranks))
    place = sum(10**rank for rank in range(ranks))
    total = [n * place for n in range(1, ranks + 1)]
    assert len(frames) == 1 + 2 * (ranks - 1)
    for number, frame in enumerate(frames[1:]):
        assert frame.sent == [(rank - number) % ranks for rank in range(ranks)]
    assert frames[-1].rows == [total] * ranks
    for rank, row in enumerate(frames[ranks - 1].rows):
        piece = (rank + 1) % ranks
        assert [number == whole for number, whole in zip(row, total, strict=True)].count(True) == 1
        assert row[piece] == total[piece]
    show(figures.ring_frames_plot(frames), alt=" ".join(map(figures.alt_text_of_frame, frames)))
    show(figures.ring_frame_plot(frames, 0), alt=figures.alt_text_of_frame(frames[0]))


# The slider


def pictures(count: int = 3) -> list:
    moved = [([n], [n + 1]) for n in range(count)]
    return [show(figures.collective_plot([pair]), alt=f"Frame {pair}") for pair in moved]


def test_the_slider_shows_one_frame_after_the_other():
    """The frame's own alt text goes with it."""
    made = stepper(listed := pictures(), "round")
    assert (made.slider.min, made.slider.max, made.slider.description) == (0, 2, "round")
    for number, picture in enumerate(listed):
        made.slider.value = number
        assert made.frame.value == picture._repr_html_()


def test_without_widgets_all_frames_are_there():
    """The HTML beside the widget holds every frame with its alt text."""
    bundle = stepper(pictures())._repr_mimebundle_()
    assert WIDGET in bundle
    assert bundle["text/html"].count("<img ") == 3 == bundle["text/plain"].count("Frame")


def test_a_stepper_of_one_frame_has_nowhere_to_go():
    """It is shown all the same."""
    assert stepper(pictures(1)).slider.max == 0


# Time against size


def timings(alpha=1e-4, beta=1e-9, sizes=(64, 4096, 2**20, 2**22), ranks=2) -> pd.DataFrame:
    rows = [
        ("all_reduce", ranks, size, n, (alpha + beta * size) * (1 + 0.3 * (n > 1)))
        for size in sizes
        for n in (1, 2, 3)
    ]
    return pd.DataFrame(rows, columns=experiments.COLUMNS)


def test_the_fit_finds_latency_and_bandwidth():
    """From the fastest rounds, exactly where the times lie on a line."""
    line = experiments.fit(timings()).iloc[0]
    assert line["latency"] == pytest.approx(1e-4) and line["bandwidth"] == pytest.approx(1e9)
    assert line["knee"] == pytest.approx(1e5)


def test_neither_part_of_the_line_is_negative():
    """Times that fall with the size, and times through nothing."""
    falling = timings(alpha=1e-3, beta=-1e-11)
    assert experiments.fit(falling).iloc[0]["bandwidth"] == math.inf
    steep = timings(alpha=-1e-9, beta=1e-9)
    assert experiments.fit(steep).iloc[0]["latency"] >= 0
    for frame in (falling, steep):
        show(figures.alpha_beta_plot(frame, experiments.fit(frame)), alt="Points and a line.")


def test_times_are_measured_on_ranks():
    """A row for each op, number of ranks, size and round; large sizes take longer than small."""
    times = experiments.time_against_size(ranks=(1, 2), sizes=(256, 2**22), rounds=2)
    assert len(times) == 3 * 2 * 2 * 2 and list(times) == experiments.COLUMNS
    assert (times["seconds"] > 0).all()
    means = times[times["ranks"] == 2].groupby(["op", "bytes"])["seconds"].min().unstack()
    assert means[2**22].sum() > means[256].sum()
    show(figures.alpha_beta_plot(times, experiments.fit(times)), alt="Three panels.")


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"sizes": (24,)}], ids=str)
def test_what_cannot_be_measured_is_refused(wrong):
    """Before any rank is started."""
    with pytest.raises(ValueError, match=r"must be 1 or more|24 is not a multiple of 16"):
        experiments.time_against_size(**wrong)


def test_one_size_makes_no_line():
    """Two unknowns need two points."""
    with pytest.raises(ValueError, match="needs two sizes"):
        experiments.fit(timings(sizes=(64,)))


# What the notebook says and no cell asserts


def test_only_the_destination_of_a_reduce_has_the_sum():
    """gloo leaves half-made sums on the others."""
    first, *others = launch(workers.reduced, ranks=4)
    assert first.tolist() == [1111, 2222, 3333, 4444]
    for rank, other in enumerate(others, start=1):
        assert other.tolist() not in (first.tolist(), [n * 10**rank for n in (1, 2, 3, 4)])


def test_gloo_gathers_pieces_of_one_length_only():
    """It refuses others before anything hangs."""
    with pytest.raises(RankFailed, match="invalid tensor size"):
        launch(workers.uneven_gather, ranks=2, timeout=20)


def test_avg_refuses_whole_numbers_and_int8_runs_over():
    """On gloo."""
    assert "can't be cast" in launch(workers.average_of_whole_numbers, ranks=2)[0]
    assert launch(workers.small_dtype, ranks=2) == [-56, -56]


@pytest.mark.parametrize("count", [1, 1_000_000])
def test_two_that_both_send_first_hang(count):
    """Small or large; the report says so, and the other order works."""
    with pytest.raises(RanksHung, match="Each send needs a recv"):
        launch(workers.both_send_first, count, ranks=2, timeout=3)
    assert launch(workers.one_receives_first, count, ranks=2) == [10, 1]


def test_an_all_reduce_waits_for_all_and_a_broadcast_does_not():
    """Rank 1 comes late."""
    entered, left = zip(*launch(workers.comes_late, "all_reduce", ranks=4), strict=True)
    assert min(left) > max(entered)
    entered, left = zip(*launch(workers.comes_late, "broadcast", ranks=4), strict=True)
    assert min(left[2:]) < entered[1]


@pytest.mark.parametrize("detail", [False, True])
def test_the_same_shape_in_another_order_is_seen_by_nobody(detail):
    """Not even with DebugLevel.DETAIL."""
    assert launch(workers.other_order, detail, ranks=2) == [(21, 12), (12, 21)]


def test_shapes_that_differ_end_in_different_ways():
    """4 and 5 numbers abort; with 2 and 3 rank 0 returns and rank 1 finds it gone."""
    with pytest.raises(RankFailed, match="Rank 0 of 2 was ended by SIGABRT"):
        launch(workers.other_shapes, 4, 5, ranks=2, timeout=20)
    with pytest.raises(RankFailed, match="rank 0 had already returned"):
        launch(workers.other_shapes, 2, 3, ranks=2, timeout=20)


def test_in_a_group_the_source_is_a_global_rank():
    """The source of a broadcast in the group of ranks 2 and 3 is 2 or 3, not 0."""
    assert launch(workers.broadcast_in_the_second_pair, 2, ranks=4)[2:] == [100, 100]
    refused = launch(workers.broadcast_in_the_second_pair, 0, ranks=4)[2:]
    assert all("Global rank 0 is not part of group" in one for one in refused)
    assert launch(workers.global_rank_of_the_first, ranks=3) == [-1, 1, 1]


def test_a_rank_outside_a_group_is_warned_and_nothing_happens():
    """Its tensor stays as it was."""
    _, (values, said) = launch(workers.not_in_the_group, ranks=2)
    assert values == [10] and "does not belong to the given group" in said[0]


def test_sharding_uses_the_forms_with_one_tensor():
    """all_gather of the weights, reduce_scatter of the gradients."""
    ops = set(record_collectives(workers.sharded_step, ranks=2)["op"])
    assert {"all_gather_into_tensor", "reduce_scatter_tensor"} <= ops


@pytest.fixture(scope="module")
def cells() -> dict[str, str]:
    """The notebook's code cells by id."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    return {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "code"}


def test_the_page_does_not_hold_the_exercises_solutions(cells):
    """A ring needs isend or batch_isend_irecv, a tree and an uneven gather need send or shapes."""
    code = "\n".join(text for cell, text in cells.items() if not cell.startswith("ex-"))
    for word in ("isend", "batch_isend", "what_changed(ring", "getsource", "solution("):
        assert word not in code


@pytest.mark.parametrize("round_", range(3))
@pytest.mark.parametrize("kind", ["shapes differ", "dtypes differ", "no such source"])
def test_with_detail_a_mismatch_is_an_error_that_names_it(
    cells, tmp_path, monkeypatch, kind, round_
):
    """The notebook's own worker, each time anew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "work").mkdir()
    for name in [name for name in sys.modules if name.split(".")[0] == "work"]:
        monkeypatch.delitem(sys.modules, name)
    for id in ("start-file", "wrong-file"):
        line, text = cells[id].split("\n", 1)
        Path(line.split()[-1]).write_text(text)
    from work.mistakes import mistake

    words = {
        "shapes differ": "Tensor shapes: (4vs 5|5vs 4)",
        "dtypes differ": "Tensor dtypes: (Floatvs Int|Intvs Float)",
        "no such source": "invalid root rank: 7",
    }
    with pytest.raises(RankFailed) as caught:
        launch(mistake, kind, True, ranks=2, timeout=20)
    assert re.search(words[kind], caught.value.reason)
