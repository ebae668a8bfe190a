"""What chapter 06's page shows of a step: who holds what when, and what goes over the wire."""

import itertools

import pytest

from ddp_workbook import launch, show, show_code
from ddp_workbook.chapters.fully_sharded_by_hand import Unit, shard
from ddp_workbook.digits import DigitsTransformer
from ddp_workbook.errors import WorkbookError
from ddp_workbook.experiments.fully_sharded.step import moments_of_a_step
from ddp_workbook.experiments.fully_sharded.wire import (
    AS_ONE,
    BY_BLOCK,
    BY_HAND,
    DDP,
    WAYS,
    wire_of_a_step,
    wire_table,
)
from ddp_workbook.figures.fully_sharded.step import (
    WHOLE,
    alt_text_of_step,
    alt_text_of_step_frame,
    step_frame_plot,
    step_strip_plot,
)

PARAMETERS = {depth: DigitsTransformer(64, depth) for depth in (1, 3)}


@pytest.fixture(scope="module")
def moments():
    return launch(moments_of_a_step, ranks=2)


def test_a_block_is_whole_for_its_forward_and_for_its_backward_and_never_two_at_once(moments):
    for of_rank in moments:
        whole = [[b for b, held in enumerate(m.weights) if held == WHOLE] for m in of_rank]
        assert max(map(len, whole)) == 1
        forwards = [m for m in of_rank if m.doing.startswith(("forward", "backward"))]
        assert [m.block for m in forwards] == [0, 1, 2, 2, 1, 0]
        assert all(m.weights[m.block] == WHOLE for m in forwards)
        assert set(of_rank[0].weights) == set(of_rank[-1].weights) == {"piece"}


def test_a_whole_gradient_lives_until_its_reduce_scatter(moments):
    for of_rank in moments:
        for before, after in itertools.pairwise(of_rank):
            if after.doing.startswith("reduce-scatter"):
                assert before.gradients[after.block] == WHOLE
                assert after.gradients[after.block] == "piece"
        assert set(of_rank[-1].gradients) == set(of_rank[-1].states) == {"piece"}
        assert set(of_rank[-2].states) == {"none"}


def test_the_pictures_say_in_words_what_they_show(moments):
    strip = show(step_strip_plot(moments), alt_text_of_step(moments))
    assert "At most 1 block is whole at a time" in strip.alt and "1, 2, 3, 3, 2, 1" in strip.alt
    backward = next(n for n, m in enumerate(moments[0]) if m.doing == "backward, block 3")
    frame = show(step_frame_plot(moments, backward), alt_text_of_step_frame(moments, backward))
    assert "the whole weights of block 3" in frame.alt
    assert "the whole gradient of block 3" in frame.alt
    assert "its piece of the gradient of block 3" in alt_text_of_step_frame(moments, backward + 1)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_calls_and_bytes_are_those_of_the_formulas(ranks):
    """Blocks are gathered twice and the rest once: 3 (N-1)/N S for DDP's 2, but for the rest."""
    table = wire_table(ranks)
    blocks = 3
    assert table.loc[DDP, ["all_gather", "reduce_scatter"]].tolist() == [0, 0]
    assert table.loc[AS_ONE, ["all_gather", "reduce_scatter"]].tolist() == [1, 1]
    for way in (BY_HAND, BY_BLOCK):
        calls = table.loc[way, ["all_gather", "reduce_scatter"]].tolist()
        assert calls == [2 * blocks + 1, blocks + 1]
    whole = 4 * sum(p.numel() for p in PARAMETERS[3].parameters())
    of_blocks = 4 * sum(p.numel() for p in PARAMETERS[3].blocks.parameters())
    share = (ranks - 1) / ranks
    sent = table["sent in a ring"]
    assert sent[DDP] == round(2 * share * whole)
    assert sent[BY_HAND] == pytest.approx(share * (2 * whole + of_blocks), rel=0.001)
    # fully_shard cuts between rows, so that 64 rows are 22, 22 and 20 on 3 ranks, padded to 22.
    assert sent[BY_BLOCK] == pytest.approx(share * (2 * whole + of_blocks), rel=0.02)
    assert sent[AS_ONE] == pytest.approx(2 * share * whole, rel=0.02)


def test_backward_meets_the_blocks_in_reverse():
    """By block: the last block's reduce-scatter is asked for before the first block's gather."""
    step = wire_of_a_step(BY_HAND)
    ops = list(step["op"])
    assert ops == ["all_gather"] * 4 + ["all_gather", "reduce_scatter"] * 3 + ["reduce_scatter"]
    assert set(WAYS) == {DDP, BY_HAND, AS_ONE, BY_BLOCK}


def test_show_code_reads_the_file_as_it_is_now():
    page = show_code(shard, Unit.gather)
    assert "def shard(tensor: Tensor)" in repr(page)
    assert "dist.all_gather(everyone, own)" in repr(page)
    assert "src/ddp_workbook/chapters/fully_sharded_by_hand.py, from line" in repr(page)
    html = page._repr_html_()
    assert "<pre" in html and "all_gather" in html and "<script" not in html
    with pytest.raises(WorkbookError, match="no Python source file"):
        show_code(len)
