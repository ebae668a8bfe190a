"""What memory_per_rank takes for right is what ranks hold: measured anew."""

import pytest

from ddp_workbook.chapters.digits import DigitsTransformer
from ddp_workbook.exercises.fully_sharded.memory_per_rank import CASES, DIGITS, Measurement
from manyranks.launcher.launch import launch
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tests.workers.held_by_strategies import measure_cases

KEYS = ("parameters", "gradients", "optimizer", "gathered")
RARELY = pytest.mark.release("bytes that 1, 3 and 6 ranks hold, measured again")
SIZES = [
    size if size in (2, 4) else pytest.param(size, marks=RARELY)
    for size in sorted({case.ranks for case in CASES})
]


def record_bytes(case: Measurement) -> dict[str, int]:
    """The bytes that the exercise asks for."""
    return {key: getattr(case, key) for key in KEYS}


@pytest.mark.push("claims of the pages that take long")
@pytest.mark.parametrize("ranks", SIZES)
def test_the_recorded_bytes_are_those_that_ranks_hold(ranks):
    """With DDP, ZeroRedundancyOptimizer and fully_shard themselves; of each part the fullest."""
    cases = [case for case in CASES if case.ranks == ranks]
    asked = [(*case.model, case.strategy) for case in cases]
    answers = launch(measure_cases, asked, ranks=ranks, timeout=120)
    for case, by_rank in zip(cases, zip(*answers, strict=True), strict=True):
        fullest = {key: max(one[key] for one in by_rank) for key in KEYS}
        assert fullest == record_bytes(case), (case.strategy, case.model)


def test_every_strategy_was_measured():
    strategies = {case.strategy for case in CASES}
    assert strategies == {
        "ddp",
        "zero_1",
        "blocks_stay_gathered",
        "zero_3",
        "one_unit",
        "hsdp",
        "bf16",
    }


def test_one_of_the_models_is_the_chapters_own():
    model = DigitsTransformer()
    blocks = [[tuple(p.shape) for p in block.parameters()] for block in model.blocks]
    root = [tuple(p.shape) for name, p in model.named_parameters() if "blocks." not in name]
    assert (sorted(DIGITS.root), DIGITS.blocks) == (sorted(root), blocks)
