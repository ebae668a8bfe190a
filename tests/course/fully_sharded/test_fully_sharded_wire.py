"""What chapter 06's page shows of a step: who holds what when, and what goes over the wire."""

import itertools
import re

import pytest

from ddp_workbook import launch, show_code
from ddp_workbook.chapters.digits import DigitsTransformer
from ddp_workbook.chapters.fully_sharded_by_hand import Unit, shard
from ddp_workbook.experiments.fully_sharded import by_hand, ledger, memory, step
from ddp_workbook.experiments.fully_sharded.memory import BY_BLOCK, BY_HAND, DDP, ONE_UNIT, RING
from ddp_workbook.experiments.fully_sharded.one_process import one_process
from ddp_workbook.experiments.fully_sharded.step import FULL, record_moments
from ddp_workbook.experiments.fully_sharded.strategies import STRATEGIES
from manyranks.errors import WorkbookError
from tests.workers.from_meta import sharded_from_meta
from tests.workers.fsdp1 import with_fsdp1
from tools.set_up import ROOT

PEAK, COUNTED, GB = "allocator's peak", "kept, counted", 1000  # MB
PARAMETERS = {depth: DigitsTransformer(64, depth) for depth in (1, 3)}


@pytest.fixture(scope="module")
def moments():
    return launch(record_moments, ranks=2)


def test_a_block_is_whole_for_its_forward_and_for_its_backward_and_never_two_at_once(moments):
    for of_rank in moments:
        whole = [[b for b, held in enumerate(m.weights) if held == FULL] for m in of_rank]
        assert max(map(len, whole)) == 1
        forwards = [m for m in of_rank if m.activity.startswith(("forward", "backward"))]
        assert [m.block for m in forwards] == [0, 1, 2, 2, 1, 0]
        assert all(m.weights[m.block] == FULL for m in forwards)
        assert set(of_rank[0].weights) == set(of_rank[-1].weights) == {"shard"}


def test_a_whole_gradient_lives_until_its_reduce_scatter(moments):
    for of_rank in moments:
        for before, after in itertools.pairwise(of_rank):
            if after.activity.startswith("reduce-scatter"):
                assert before.gradients[after.block] == FULL
                assert after.gradients[after.block] == "shard"
        assert set(of_rank[-1].gradients) == set(of_rank[-1].states) == {"shard"}
        assert set(of_rank[-2].states) == {"none"}


def test_the_pictures_say_in_words_what_they_show(moments):
    strip = step.strip(moments)
    assert "At most 1 block is unsharded at a time" in strip.alt and "1, 2, 3, 3, 2, 1" in strip.alt
    backward = next(n for n, m in enumerate(moments[0]) if m.activity == "backward, block 3")
    frame = step.frame(moments, backward)
    assert "the full weights of block 3" in frame.alt
    assert "the full gradient of block 3" in frame.alt
    assert "its shard of the gradient of block 3" in step.frame(moments, backward + 1).alt


def test_the_slider_has_the_whole_step_and_opens_where_the_first_gradient_is(moments):
    slider = step.slider(moments)
    assert len(slider.pictures) == len(moments[0]) and slider.slider.min == 1
    assert "backward, block 3" in slider.pictures[slider.slider.value - 1].alt
    assert 'alt="Moment 12, backward, block 3' in slider.frame.value


def test_the_strip_names_each_column_by_a_letter_above_and_below(moments):
    letters = [text.get_text() for text in step.strip(moments).axes.texts]
    assert [letters.count(letter) for letter in "GCFR"] == [2 * 6, 2 * 6, 2 * 3, 2 * 3]
    assert step._turns(moments[0])[2:4] == [(2, 7, 9), (2, 10, 12)]


@pytest.fixture(scope="module")
def steps():
    """On 3 ranks, whose shards are not equally long; the page measures 4."""
    return memory.measure_steps(ranks=3)


@pytest.mark.push("claims of the pages that take long")
def test_calls_and_bytes_are_those_of_the_formulas(steps):
    """Blocks are gathered twice and the rest once: 3 (N-1)/N S for DDP's 2, but for the rest."""
    table = memory.wire_table(steps)
    ranks = blocks = 3
    assert table.loc[DDP, ["all_gather", "reduce_scatter"]].tolist() == [0, 0]
    assert table.loc[ONE_UNIT, ["all_gather", "reduce_scatter"]].tolist() == [1, 1]
    for way in (BY_HAND, BY_BLOCK):
        calls = table.loc[way, ["all_gather", "reduce_scatter"]].tolist()
        assert calls == [2 * blocks + 1, blocks + 1]
    whole = 4 * sum(p.numel() for p in PARAMETERS[3].parameters())
    of_blocks = 4 * sum(p.numel() for p in PARAMETERS[3].blocks.parameters())
    share = (ranks - 1) / ranks
    sent = table[RING]
    assert sent[DDP] == round(2 * share * whole / 1000)
    assert sent[BY_HAND] == pytest.approx(share * (2 * whole + of_blocks) / 1000, rel=0.002)
    # fully_shard cuts between rows, so that 64 rows are 22, 22 and 20 on 3 ranks, padded to 22.
    assert sent[BY_BLOCK] == pytest.approx(share * (2 * whole + of_blocks) / 1000, rel=0.02)
    assert sent[ONE_UNIT] == pytest.approx(2 * share * whole / 1000, rel=0.02)


def test_show_code_reads_the_file_as_it_is_now():
    page = show_code(shard, Unit.all_gather)
    assert "def shard(tensor: Tensor)" in repr(page)
    assert "dist.all_gather(everyone, own)" in repr(page)
    assert "src/ddp_workbook/chapters/fully_sharded_by_hand.py, from line" in repr(page)
    html = page._repr_html_()
    assert "<pre" in html and "all_gather" in html and "<script" not in html
    with pytest.raises(WorkbookError, match="no Python source file"):
        show_code(len)


# The ledger of the page


@pytest.mark.push("claims of the pages that take long")
def test_what_is_measured_is_what_the_formulas_say(steps):
    """Every part that has a formula, within 2 %."""
    for way, of_ranks in steps.items():
        by_formula = memory.predicted_memory(way, len(of_ranks))
        for part in memory.PARTS:
            if (way, part) != (BY_HAND, "unsharded"):
                held = getattr(of_ranks[0].held, part)
                assert held == pytest.approx(getattr(by_formula, part), rel=0.02), (way, part)


@pytest.mark.push("claims of the pages that take long")
def test_only_what_is_unsharded_does_not_shrink(steps):
    ranks = len(steps[DDP])
    ddp, by_block = (steps[way][0].held for way in (DDP, BY_BLOCK))
    whole = 4 * sum(p.numel() for p in PARAMETERS[3].parameters())
    assert (ddp.parameters, ddp.gradients) == (whole, whole) and ddp.unsharded == 0
    assert by_block.model_states == pytest.approx(ddp.model_states / ranks, rel=0.02)
    block = 4 * sum(p.numel() for p in PARAMETERS[3].blocks[0].parameters())
    assert 2 * block < by_block.unsharded < 5 * block


def test_whole_is_whole_throughout_and_by_block_two_blocks_at_most(steps):
    whole = {way: memory.whole_by_event(steps[way][0].timeline) for way in (ONE_UNIT, BY_BLOCK)}
    events = [[event for event, _ in moments] for moments in whole.values()]
    assert events[0] == events[1] and events[0][:2] == ["outside the blocks", "forward, block 1"]
    total = 4 * sum(p.numel() for p in PARAMETERS[3].parameters())
    assert all(sum(now.values()) >= total for _, now in whole[ONE_UNIT][:-1])
    blocks = [[unit for unit in now if unit != "root"] for _, now in whole[BY_BLOCK]]
    assert max(map(len, blocks)) == 2
    assert memory.whole_weights(steps, ONE_UNIT, BY_BLOCK).alt.count("at most") == 2


def test_the_last_block_is_gathered_twice_in_a_row_because_its_buffer_is_freed_in_between(steps):
    """fully_shard keeps the last all-gather's buffer until the model's forward returns."""
    timeline = steps[BY_BLOCK][0].timeline
    turn = next(n for n, moment in enumerate(timeline) if moment.event.startswith("backward"))
    blocks = [{unit for _, unit in moment.live if unit != "root"} for moment in timeline]
    before = next(units for units in reversed(blocks[:turn]) if units)
    after = next(units for units in blocks[turn:] if units)
    assert blocks[turn] == set() and before == after == {"blocks.2"}
    picture = memory.whole_weights(steps, ONE_UNIT, BY_BLOCK)
    assert any("again" in text.get_text() for text in picture.axes.texts)
    by_hand_too = memory.whole_weights(steps, ONE_UNIT, BY_HAND)
    assert not any("again" in text.get_text() for text in by_hand_too.axes.texts)


def test_unsharded_does_not_grow_with_the_number_of_blocks():
    """The page says: from 3 blocks on; and 3.5 GB a block of a model of 70B with eighty."""
    sizes = {
        depth: memory.predicted_memory(BY_BLOCK, ranks=4, depth=depth).unsharded
        for depth in range(1, 9)
    }
    assert sizes[1] < sizes[2] < sizes[3] and len({sizes[depth] for depth in range(3, 9)}) == 1
    assert 70 / 80 * 4 == 3.5


def test_the_page_says_what_a_gpu_has_recorded():
    """Recorded anew on another GPU, the sentence changes."""
    size = {"width": 1024, "depth": 8, "batch": 1024}
    recorded = ledger.read_ledger().query("width == 1024 and depth == 8 and batch == 1024")
    rows = recorded.set_index(["strategy", "ranks"])
    alone, sharded = rows.loc[("one process", 1)], rows.loc[("fully_shard", 8)]
    activations = ledger.activation_bytes(
        STRATEGIES["fully_shard"], size["width"], size["depth"], size["batch"]
    )
    sentences = [
        f"peaked at {alone[PEAK] / GB:.1f} GB in one process, "
        f"and at {sharded[PEAK] / GB:.1f} GB with `fully_shard` on rank 0 of 8",
        f"fell from {alone[COUNTED] / GB:.1f} GB to {sharded[COUNTED] / GB:.1f} GB",
        f"{activations / 1e9:.1f} GB of each peak are activations",
    ]
    page = (ROOT / "notebooks" / "06_fully_sharded.ipynb").read_text()
    assert [sentence for sentence in sentences if sentence not in page] == []


def test_the_bars_are_those_of_the_ranks(steps):
    picture = memory.bars(steps, DDP)
    assert len({bar.get_x() for bar in picture.axes.patches}) == len(steps[DDP])
    assert "DDP: rank 0: parameters 605, gradients" in picture.alt
    words = [text.get_text().partition(" ")[0] for text in picture.axes.texts]
    assert words == ["parameters", "gradients", "optimizer", "buckets", "activations"]


def test_the_page_says_that_the_parts_do_not_peak_together():
    held = memory.measure_steps(ranks=4, depth=8, ways=[DDP])[DDP][0].held
    parts = held.parameters + held.gradients + held.optimizer + held.buckets + held.activations
    said = f"with DDP the peak is {held.peak / 1e6:.1f} MB instead of {parts / 1e6:.1f}."
    assert said in (ROOT / "notebooks" / "06_fully_sharded.ipynb").read_text()


def test_the_page_says_how_many_parameters_its_model_has():
    parameters = sum(p.numel() for p in DigitsTransformer(64, 8).parameters())
    page = (ROOT / "notebooks" / "06_fully_sharded.ipynb").read_text()
    assert f"{parameters:,} parameters" in page


def test_fsdp1_trains_to_the_same_loss():
    losses = launch(with_fsdp1, ranks=2)[0]
    assert losses == pytest.approx(one_process(epochs=1, batch_size=300).losses, abs=1e-5)


# What the page about the program by hand says


@pytest.mark.push("claims of the pages that take long")
def test_without_placeholders_nothing_is_freed():
    steps = by_hand.steps_by_hand(depth=3)
    whole = {way: memory.whole_by_event(of[0].timeline) for way, of in steps.items()}
    total = 4 * sum(p.numel() for p in PARAMETERS[3].parameters())
    most = {way: max(sum(now.values()) for _, now in moments) for way, moments in whole.items()}
    assert most[by_hand.NONE] > 0.95 * total and most[by_hand.PLACEHOLDERS] < 0.4 * total


def test_messages_come_in_the_order_that_the_page_shows(steps):
    """By hand nothing is prefetched; fully_shard gathers block 2 before it has reduced block 3."""
    order = memory.messages_in_order(steps, [BY_HAND, BY_BLOCK])
    backward = [words.partition(", ")[::2] for words in order[BY_HAND][4:10]]
    gather, scatter = "all-gather", "reduce-scatter"
    assert backward == [(way, f"block {n}") for n in (3, 2, 1) for way in (gather, scatter)]
    assert list(order[BY_BLOCK][4:7]) == [
        "all-gather, block 3",
        "all-gather, block 2",
        "reduce-scatter, block 3",
    ]


def test_a_model_on_meta_is_sharded_before_it_has_memory():
    """Built without memory, sharded, given memory for its shards, then loaded."""
    for shapes, whole_bytes, right in launch(sharded_from_meta, ranks=2):
        assert shapes == (128, 64) and whole_bytes == 0 and right


@pytest.mark.push("claims of the pages that take long")
def test_memory_to_play_with_is_what_the_formula_says():
    play = memory.play_memory()
    for name, value in {"ranks": 2, "way": DDP, "depth": 1, "dtype": "bfloat16"}.items():
        play.controls[name].value = value
    play.wait()
    pattern = r"(?:formula|rank \d): (.*?), activations (\d+)[;.] ?"
    (formula, of_formula), *ranks = re.findall(pattern, play.answer.words)
    assert [rank for rank, _ in ranks] == [formula] * 2 and "buckets 103" in formula
    # All but what the output layer saves, which in a model of one block is a few per cent.
    assert all(0.95 * int(kept) < int(of_formula) <= int(kept) for _, kept in ranks)


def test_a_formula_is_drawn_before_the_ranks_have_answered():
    picture = memory.memory_plot(ranks=2, way=BY_BLOCK, depth=2, dtype="float32")
    assert picture.alt.startswith("What a rank should hold; the ranks still measure")
