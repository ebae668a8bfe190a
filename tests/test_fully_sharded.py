"""Chapter 06's two programs: models that the chapter does not know, memory, bad input.

That both equal one process in training is a test of tests/test_chapters.py.
"""

import os
import re

import pytest

from ddp_workbook import RankFailed, RanksHung, launch
from ddp_workbook.launcher import fork_server
from tests.workers import sharded, sharded_badly

WAYS = list(sharded_badly.WAYS)


BETWEEN = pytest.mark.release("models sharded by hand on 2 and 3 ranks, between 1 and 4")


@pytest.mark.parametrize(
    "ranks", [1, pytest.param(2, marks=BETWEEN), pytest.param(3, marks=BETWEEN), 4]
)
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


def said(worker, *args, **kwargs) -> str:
    """What a reader sees when this fails, at 2 ranks."""
    with pytest.raises(RankFailed) as raised:
        launch(worker, *args, ranks=2, timeout=60, **kwargs)
    return str(raised.value)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("a list in a list", "containers that do not implement forward: ModuleList"),
        ("names", "'str' object has no attribute 'modules'"),
        ("one module", "'Linear' object is not iterable"),
    ],
)
def test_blocks_that_are_none(kind, words):
    report = said(sharded_badly.choose_blocks, "fully_shard", kind)
    assert words in report
    assert "look at" not in report  # no advice on something else


@pytest.mark.parametrize(
    ("way", "worker", "words"),
    [
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
