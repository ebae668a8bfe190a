"""Chapter 05: its worker, its pictures of boxes, and what its core page says of collectives."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.text import Text

from ddp_workbook import launch
from ddp_workbook.chapters import collectives
from ddp_workbook.chapters.digits import DigitsMLP
from ddp_workbook.experiments.collectives import before_and_after, calls, completion, every_call
from manyranks.errors import RankFailed
from manyranks.recording.collectives import record_collectives
from tests.picture_text import words as words_of
from tests.workers import collectives_workers as workers

# The worker


@pytest.mark.parametrize("ranks", [1, 2, 4])
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
    assert sum(parameter.numel() for parameter in DigitsMLP().parameters()) == 4810
    for _, mine in wire.groupby("rank"):
        assert list(mine["op"]) == ["reduce_scatter", "all_gather"] * 29 + ["all_reduce", "barrier"]
        assert list(mine["bytes"])[:2] == [4 * 4812, 4 * 1203]


# What ranks hold, and where it came from


def test_a_number_knows_the_ranks_that_are_in_it():
    """Own numbers, sums over some ranks at the same place, and nothing that two ways lead to."""
    known = before_and_after.origins([[[1, 2]], [[10, 20]], [[100, 200]]])
    assert known[10] == {1} and known[101] == {0, 2} and known[222] == {0, 1, 2}
    assert 12 not in known  # 10 + 2 stand at different places
    known = before_and_after.origins([[[1]], [[2]], [[3]], [[4]]])
    assert known[3] == {2}  # also 1 + 2, but a rank's own comes first
    assert 5 not in known  # 1 + 4 and 2 + 3


# The pictures


def boxes_of(picture) -> list[FancyBboxPatch]:
    return [box for box in picture.axes.patches if isinstance(box, FancyBboxPatch)]


def test_a_picture_shows_each_number_and_each_rank():
    """Before and after, empty hands too; the alternative text has the same values."""
    moved = [(torch.tensor([1, 2]), [torch.tensor(11), 22]), ([10, 20], None)]
    picture = before_and_after.collectives_plot({"reduce": moved})
    assert picture.alt == (
        "reduce. rank 0: 1 2 before, 11 | 22 after; rank 1: 10 20 before, nothing after."
    )
    shown = [text.get_text() for text in picture.figure.findobj(Text)]
    numbers = {"1", "2", "10", "20", "11", "22", "nothing"}
    assert numbers | {"rank 0", "rank 1", "before", "after"} <= set(shown)


def test_colours_follow_the_numbers():
    """A number from rank 1 has rank 1's colour, a sum is white, an unknown number grey."""
    picture = before_and_after.collectives_plot({"": [([1], [10, 11, 5]), ([10], [10, 11, 5])]})
    fills = [box.get_facecolor() for box in boxes_of(picture)]
    before, after = fills[:2], fills[2:]
    assert after[0] == before[1] != before[0]
    assert after[1] == (1, 1, 1, 1) and len(set(after[2][:3])) == 1 != after[2][0]


def test_more_than_a_picture_can_show_is_refused():
    """Each rank needs a colour of its own, and each number its room."""
    moved = [(rank, rank) for rank in range(9)]
    before_and_after.collectives_plot({"": moved[:8]})
    with pytest.raises(ValueError, match="up to 8 ranks, these are 9"):
        before_and_after.collectives_plot({"": moved})
    with pytest.raises(ValueError, match="draw smaller tensors"):
        before_and_after.collectives_plot({"": [(torch.arange(1000), 1)]})


def test_two_collectives_stand_side_by_side():
    """The same boxes and words as one below the other, in half of the height."""
    results = {"broadcast": [([1], [1]), ([10], [1])], "scatter": [([1, 2], [1]), (None, [2])]}
    beside = before_and_after.side_by_side_plot(results)
    below = before_and_after.collectives_plot(results)
    assert beside.alt == below.alt
    assert len(boxes_of(beside)) == len(boxes_of(below))
    assert beside.figure.get_figheight() < 0.55 * below.figure.get_figheight()
    ends = [box.get_x() + box.get_width() for box in boxes_of(beside)]
    assert max(ends) < beside.axes.get_xlim()[1]


def test_the_calls_of_the_page_fit_side_by_side():
    for names in (("broadcast", "scatter"), ("reduce", "gather")):
        picture = before_and_after.side_by_side_plot(before_and_after.run_collectives(*names))
        ends = [box.get_x() + box.get_width() for box in boxes_of(picture)]
        assert max(ends) < picture.axes.get_xlim()[1]


def test_stages_keep_the_colours_of_the_start():
    """A sum of all ranks has four stripes in each later stage, and no colour of one rank."""
    stages = before_and_after.stages(ranks=4)
    total = [1111, 2222, 3333, 4444]
    assert [one.tolist() for one in stages["after reduce_scatter"]] == [[n] for n in total]
    assert [torch.cat(one).tolist() for one in stages["after all_gather"]] == [total] * 4
    picture = before_and_after.stages_plot(stages)
    boxes = boxes_of(picture)
    assert len(boxes) == 16 + 4 + 16
    assert {box.get_facecolor() for box in boxes[16:]} == {(1, 1, 1, 1)}
    stripes = [box for box in picture.axes.patches if box not in boxes]
    assert sum(isinstance(one, Rectangle) for one in stripes) == 16 + 4 * 20
    assert "after reduce_scatter: rank 0 1111; rank 1 2222" in picture.alt


# Every call


@pytest.mark.push("torchrun again")
def test_the_program_under_torchrun_shows_what_each_collective_does():
    """All of them, a line a rank, in the order of the page: what each rank holds after the call."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "3", every_call.__file__]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    after = {
        "broadcast": ["1 2 3"] * 3,
        "scatter": ["1", "2", "3"],
        "reduce": ["111 222 333"],
        "gather": ["1 | 10 | 100", "-", "-"],
        "all_reduce": ["111 222 333"] * 3,
        "all_gather": ["1 | 10 | 100"] * 3,
        "reduce_scatter": ["111", "222", "333"],
        "all_to_all": ["1 | 10 | 100", "2 | 20 | 200", "3 | 30 | 300"],
        "barrier": ["1 2 3", "10 20 30", "100 200 300"],
    }
    assert [line for line in lines if "->" not in line] == list(after)
    for name, held in after.items():
        for rank, values in enumerate(held):
            row = lines[lines.index(name) + 1 + rank]
            assert row.startswith(f"rank {rank} ") and row.endswith(f" -> {values}"), (name, row)
    line = f"src/ddp_workbook/experiments/collectives/{Path(every_call.__file__).name}\n"
    assert line in every_call.__doc__


def test_the_forms_with_one_tensor_give_the_same():
    """all_gather, reduce_scatter, all_to_all; no warning of old names."""
    for rank, (everyone, own, arrived) in enumerate(launch(workers.in_one_tensor, ranks=2)):
        assert everyone.tolist() == [1, 10]
        assert own.tolist() == [[11], [22]][rank]
        assert arrived.tolist() == [[1, 10], [2, 20]][rank]


def test_the_program_makes_every_collective_that_torch_has():
    """Nine kinds, and the forms with one tensor; torch itself is asked."""
    single = {"all_to_all_single", every_call.all_gather_single.__name__}
    single.add(every_call.reduce_scatter_single.__name__)
    assert set(calls.tensor_collectives()) == set(every_call.COLLECTIVES) | single


def test_bytes_of_calls():
    """Recorded at 4 ranks, 16 bytes; all-reduce costs as much as its two halves.

    The root of a gather receives as much as every rank of an all_gather.
    """
    table = calls.bytes_of_calls(ranks=4).set_index("call")
    assert list(table.loc["all_gather"])[:4] == [4, 16, 4, 16]
    assert list(table.loc["broadcast"])[:4] == [16, 0, 0, 16]
    busiest = table["busiest rank sends or receives"]
    assert busiest["all_reduce"] == busiest["all_gather"] + busiest["reduce_scatter"] == 24
    assert busiest["gather"] == busiest["scatter"] == busiest["all_gather"] == 12
    others = table["rank 0 output"] - table["rank 0 input"]
    assert busiest["gather"] == others["gather"]  # its own piece does not travel


# Who waits


def test_only_a_broadcast_lets_a_rank_leave_before_the_last_one_has_come():
    """On gloo, with rank 1 late: no barrier, no all_reduce. The picture's words say the same."""
    times = completion.arrival_and_exit_times("barrier", "all_reduce", "broadcast")
    last = {call: max(came for came, _ in ranks) for call, ranks in times.items()}
    early = {call: [left < last[call] for _, left in ranks] for call, ranks in times.items()}
    assert not any(early["barrier"] + early["all_reduce"])
    assert early["broadcast"] == [False, False, True, False]  # 0 sends to 1 and 2, and 1 to 3
    words = completion.waiting_plot(times).alt
    assert words.count("no rank left before") == 2 and words.count(" had left") == 1


def test_the_waiting_picture():
    """Rank 0 works for 0.1 s, rank 1 waits half of that; milliseconds. Nobody left early."""
    picture = completion.waiting_plot({"barrier": [(0.1, 0.1), (0.05, 0.1)]})
    widths = [bar.get_width() for bar in picture.axes.patches]
    assert widths == pytest.approx([100, 0, 50, 50])
    assert {"not there yet", "waits inside"} <= set(words_of(picture))
    assert not any(text.startswith("left after") for text in words_of(picture))


def test_the_waiting_picture_marks_a_rank_that_leaves_early():
    picture = completion.waiting_plot({"broadcast": [(0.1, 0.11), (0.0, 0.0005)]})
    (mark,) = [text for text in picture.axes.texts if text.get_text().startswith("left")]
    assert mark.get_text() == "left after 0.5 ms" and mark.get_position()[1] == 1


# What the notebook says and no cell asserts


def test_only_the_destination_of_a_reduce_has_the_sum_and_some_dtypes_have_none():
    """gloo leaves partial sums on the others, refuses AVG of whole numbers, and lets int8 wrap."""
    (first, *others), refused, small = zip(*launch(workers.sums_of_gloo, ranks=4), strict=True)
    assert first == [1111, 2222, 3333, 4444]
    for rank, other in enumerate(others, start=1):
        assert other not in (first, [n * 10**rank for n in (1, 2, 3, 4)])
    assert "can't be cast" in refused[0] and set(small) == {400 - 512}


def test_gloo_gathers_pieces_of_one_length_only():
    """It refuses others before anything hangs."""
    with pytest.raises(RankFailed, match="invalid tensor size"):
        launch(workers.uneven_gather, ranks=2, timeout=20)
