"""Chapter 06's two programs: models that the chapter does not know, memory, bad input.

That both equal one process in training is a test of tests/course/test_chapters.py.
"""

import re

import pytest

from ddp_workbook import RankFailed, launch
from ddp_workbook.chapters import fully_sharded, fully_sharded_by_hand
from ddp_workbook.chapters.distributed_data_parallel import cleanup
from tests.hang_proofs import hang_of
from tests.workers import sharded, sharded_badly

WAYS = list(sharded_badly.WAYS)


@pytest.mark.push("claims of the pages that take long")
@pytest.mark.parametrize("ranks", [1, 4])
def test_by_hand_other_models_train_as_in_one_process(ranks):
    """Losses, norms, and all parameters after three steps, in float64.

    On 4 ranks, too, pieces are padded, and some ranks have nothing of a parameter.
    """
    for found in launch(sharded.differences, ranks=ranks, timeout=200):
        assert found == dict.fromkeys(sharded.CASES, "")


def test_a_difference_would_be_seen():
    """The comparison above notices a gradient that is a sum where it should be a mean."""
    for found in launch(sharded.differences, fault=True, ranks=2):
        assert all("parameters" in words or "norm" in words for words in found.values())


def test_by_hand_no_more_than_the_rest_and_a_block_are_whole():
    """And none after backward, after an evaluation, after all parameters were asked for."""
    none = dict.fromkeys(("before", "backward", "evaluation", "all parameters"), 0)
    assert launch(sharded.units_in_memory, ranks=2) == [none | {"forward": 1, "most": 2}] * 2


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        (sharded_badly.no_group, "init_process_group"),
        (sharded_badly.one_rank_raises, r"Rank 1 \(of 2\) failed: .*2x5 and 6x6"),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_what_a_reader_is_told(way, worker, words):
    with pytest.raises(RankFailed, match=words):
        launch(worker, way, ranks=2, timeout=60)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"width": 6}, "width must be a positive multiple of 4 heads, not 6"),
        ({"depth": -1}, "depth must be a number of blocks, not -1"),
        ({"batch_size": -5}, "batch_size is -5, but a batch has at least one row"),
    ],
    ids=str,
)
@pytest.mark.parametrize("program", [fully_sharded_by_hand, fully_sharded])
def test_sizes_that_are_none(program, sizes, words):
    try:
        with pytest.raises(ValueError, match=words):
            program.train(**{"epochs": 1} | sizes)
    finally:
        cleanup()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "worker", [sharded_badly.one_rank_leaves_a_step_out, sharded_badly.one_rank_evaluates]
)
def test_a_rank_that_gathers_alone_is_found(way, worker):
    """A forward is a collective; the report names the rank, its line and what differs."""
    text = str(hang_of(worker, way))
    call = {"by hand": "all_gather", "fully_shard": "pre_forward"}[way]
    assert re.search(rf"rank 0  waits in {call} .*\n  rank 1  waits in barrier", text)
    assert "rank 0 called all_gather of float" in text


# The fork server has what a step needs


@pytest.mark.parametrize("way", ["fully_sharded_by_hand", "fully_sharded"])
def test_a_rank_imports_nothing_of_torch_for_a_step(way):
    """The fork server has imported it: 807 modules and 1.3 s in every rank otherwise."""
    assert launch(sharded.imported_by_a_step, way, ranks=2) == [[], []]
