"""Chapter 06's two programs: models that the chapter does not know, memory, dtypes, bad input.

That both equal one process in training is a test of tests/test_chapters.py.
"""

import os
import re
from functools import cache

import pytest
import torch

from ddp_workbook import RankFailed, RanksHung, launch
from ddp_workbook.launcher import fork_server
from tests.workers import sharded, sharded_badly

WAYS = list(sharded_badly.WAYS)


@cache
def by_hand(ranks: int) -> list[dict[str, str]]:
    """All cases in one launch: on each rank, what differs from one process."""
    return launch(sharded.differences, list(sharded.CASES), ranks=ranks, timeout=200)


BETWEEN = pytest.mark.release("models sharded by hand on 2 and 3 ranks, between 1 and 4")


@pytest.mark.parametrize("case", sharded.CASES)
@pytest.mark.parametrize(
    "ranks", [1, pytest.param(2, marks=BETWEEN), pytest.param(3, marks=BETWEEN), 4]
)
def test_by_hand_any_model_trains_as_in_one_process(ranks, case):
    """Losses, norms, which parameters have a gradient, and all parameters after three steps.

    On 4 ranks, too, pieces are padded, and some ranks have no row of a parameter.
    """
    assert [found[case] for found in by_hand(ranks)] == [""] * ranks


def test_a_difference_would_be_seen():
    """The comparison above notices a gradient that is a sum where it should be a mean."""
    launched = launch(sharded.differences_of_a_fault, ranks=2)
    assert all("parameters" in found or "norm" in found for found in launched)


# Memory

NESTED = {"nested", "nested, inner first"}  # the inner block while the outer one is whole
FROZEN = {"a frozen block", "frozen but for the first"}
LASTING = {"an LSTM"}  # see the docstring of FullyShardedByHand


@cache
def in_memory() -> list[dict[str, dict[str, int]]]:
    """Units of which a whole parameter is in memory, case by case."""
    return launch(sharded.units_in_memory, list(sharded.IN_MEMORY), ranks=2, timeout=200)


@pytest.mark.parametrize("case", sharded.IN_MEMORY)
def test_by_hand_no_more_than_the_rest_and_a_block_are_whole(case):
    """And none after backward, after an evaluation, after all parameters were asked for."""
    for found in in_memory():
        counts = found[case]
        at_once = 3 if case in NESTED else 2
        assert counts["most in forward"] <= at_once
        assert counts["most in backward"] <= at_once or case in FROZEN
        if case not in LASTING:
            assert counts["forward"] <= 1
            after = {"backward", "evaluation", "all parameters"}
            assert {moment: counts[moment] for moment in after} == dict.fromkeys(after, 0)


def test_by_hand_the_parameters_as_they_were_are_gone():
    assert launch(sharded.originals_in_memory, ranks=2) == [[], []]


# Dtypes


@pytest.mark.parametrize("by_layer", [True, False], ids=["by layer", "whole"])
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16], ids=str)
def test_by_hand_a_narrow_forward_keeps_masters_in_float32(dtype, by_layer):
    """Against one process with cast weights: 3e-8, 8e-6 and 6e-5 are the largest differences seen.

    Gradients have the shape and dtype of their parameters, those kept whole are equal on all ranks.
    """
    within = {None: 3e-7, torch.float16: 8e-5, torch.bfloat16: 6e-4}[dtype]
    for differences in launch(sharded.computed_in, dtype, by_layer, ranks=2):
        assert max(differences.values()) < within


def test_by_hand_arguments_are_cast_wherever_they_are():
    """Also in tuples, and by name; tokens are not."""
    narrow = torch.bfloat16
    assert launch(sharded.cast_arguments, ranks=1) == [[narrow, narrow, torch.int64, narrow]]


# What goes wrong


def test_by_hand_a_forward_that_raises_leaves_the_pieces():
    assert launch(sharded.after_a_forward_that_raises, ranks=2) == [[], []]


def test_by_hand_second_derivatives_are_refused():
    """What is gathered in backward has no graph: they would be wrong."""
    assert "no second derivative" in launch(sharded.second_derivative, ranks=1)[0]


def said(worker, *args, **kwargs) -> str:
    """What a reader sees when this fails, at 2 ranks."""
    with pytest.raises(RankFailed) as raised:
        launch(worker, *args, ranks=2, timeout=60, **kwargs)
    return str(raised.value)


@pytest.mark.parametrize(
    ("way", "kind", "words"),
    [
        ("by hand", "a list in a list", "no forward gathers it; name the modules inside: Module"),
        ("by hand", "another model's", "blocks must be modules inside the model: Sequential"),
        ("by hand", "names", "blocks must be modules inside the model: str, str"),
        ("by hand", "one module", "'Linear' object is not iterable"),
        ("fully_shard", "a list in a list", "containers that do not implement forward: ModuleList"),
        ("fully_shard", "names", "'str' object has no attribute 'modules'"),
        ("fully_shard", "one module", "'Linear' object is not iterable"),
    ],
)
def test_blocks_that_are_none(way, kind, words):
    report = said(sharded_badly.choose_blocks, way, kind)
    assert words in report
    assert "look at" not in report  # no advice on something else


@pytest.mark.parametrize(
    ("way", "worker", "words"),
    [
        ("by hand", sharded_badly.two_dtypes, r"several dtypes .*: blocks\.0\.0\.weight, blocks"),
        ("fully_shard", sharded_badly.two_dtypes, "expects uniform original parameter dtype"),
        ("fully_shard", sharded_badly.scalar, "doesn't support scalar parameters. Change scale"),
        *((way, sharded_badly.no_group, "init_process_group") for way in WAYS),
        *((way, sharded_badly.wrong_shape, "2x5 and 6x6") for way in WAYS),
        *((way, sharded_badly.one_rank_raises, "Rank 1 of 2 failed: .*2x5 and") for way in WAYS),
    ],
)
def test_what_a_reader_is_told(way, worker, words):
    assert re.search(words, said(worker, way))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"width": 6}, "width must be a positive multiple of 4 heads, not 6"),
        ({"width": 0}, "width must be a positive multiple of 4 heads, not 0"),
        ({"width": -4}, "negative dimension -4"),
        ({"depth": -1}, "depth must be a number of blocks, not -1"),
        ({"batch_size": 0}, "batch_size is 0, but a batch has at least one row"),
        ({"batch_size": -5}, "batch_size is -5"),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", WAYS)
def test_sizes_that_are_none(way, sizes, words):
    assert words in said(sharded_badly.sizes, way, **sizes)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "worker", [sharded_badly.one_rank_leaves_a_step_out, sharded_badly.one_rank_evaluates]
)
def test_a_rank_that_gathers_alone_is_found(way, worker):
    """A forward is a collective; the report names the rank, its line and what differs."""
    with pytest.raises(RanksHung) as raised:
        launch(worker, way, ranks=2, timeout=5)
    call = {"by hand": "all_gather", "fully_shard": "pre_forward"}[way]
    assert re.search(rf"rank 0  waits in {call} .*\n  rank 1  waits in barrier", str(raised.value))
    assert "rank 0 called all_gather of float" in str(raised.value)


# The fork server has what a step needs


@pytest.mark.parametrize("way", ["fully_sharded_by_hand", "fully_sharded"])
def test_a_rank_imports_nothing_of_torch_for_a_step(way):
    """The fork server has imported it: 807 modules and 1.3 s in every rank otherwise."""
    assert launch(sharded.imported_by_a_step, way, ranks=2) == [[], []]


def test_what_is_preloaded_starts_no_thread():
    """A fork would lose it, with the locks that it holds."""
    launch(os.getpid, ranks=1)
    if fork_server.server_pid() is None or not os.path.isdir("/proc/self/task"):
        pytest.skip("no fork server to look at, or no /proc")
    assert len(os.listdir(f"/proc/{fork_server.server_pid()}/task")) == 1
