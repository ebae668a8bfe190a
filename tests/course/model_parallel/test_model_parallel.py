"""Chapter 11's program: every way to cut equals one process, and what cannot be cut is refused.

That it equals one process where all ranks share the batches is a test of test_chapters.py.
"""

import pytest

from ddp_workbook import RankFailed, launch
from ddp_workbook.chapters import model_parallel
from ddp_workbook.chapters.digits import furthest
from ddp_workbook.experiments.model_parallel.one_process import one_process
from tests.workers import parallel_workers

RUN = {"epochs": 1, "batch_size": 448, "width": 16, "depth": 4}
AGAIN = pytest.mark.push("training runs of the chapters")


@pytest.mark.parametrize(
    ("data", "pipeline", "tensor"),
    [
        (1, 2, 2),
        *(pytest.param(*one, marks=AGAIN) for one in [(1, 1, 2), (1, 2, 1), (2, 1, 2), (2, 2, 1)]),
        *(pytest.param(*one, marks=AGAIN) for one in [(1, 4, 1), (1, 1, 4)]),
    ],
)
def test_a_cut_model_trains_as_one_process(data, pipeline, tensor):
    """And ends with the same weights on every rank; seen: 2e-7, by SGD (AdamW amplifies noise)."""
    cut = {"pipeline": pipeline, "tensor": tensor}
    alone = one_process(**RUN)
    first, *others = launch(model_parallel.train, ranks=data * pipeline * tensor, **RUN, **cut)
    assert first.losses == pytest.approx(alone.losses, abs=5e-6) and len(alone.losses) == 4
    assert furthest(first.weights, alone.weights) < 5e-6
    assert first.accuracy == pytest.approx(alone.accuracy, abs=2 / 1797)
    assert all(furthest(other.weights, first.weights) == 0 for other in others)


@pytest.mark.parametrize(
    ("ranks", "run", "words"),
    [
        (4, {"tensor": 3}, "tensor 3 x pipeline 1 = 3 does not divide the 4 ranks"),
        (3, {"tensor": 3}, "3 shares of whole heads: there are 4 blocks of 4 heads"),
        (2, {"pipeline": 2, "depth": 1}, "2 stages of at least one block.* there are 1 blocks"),
        (2, {"batch_size": 100}, "batch_size 100 cannot be split into 2 x 4 micro-batches"),
    ],
    ids=str,
)
def test_what_cannot_be_cut(ranks, run, words):
    with pytest.raises(RankFailed, match=words):
        launch(model_parallel.train, ranks=ranks, **RUN | run)


@pytest.mark.push("what the page says of PyTorch")
def test_cut_and_whole_parameters_cannot_be_clipped_together():
    """Why `ddp-workbook new` has no tensor parallelism, beside the plan; seen in torch 2.13."""
    with pytest.raises(RankFailed, match=r"aten\.stack\.default"):
        launch(parallel_workers.clip_cut_and_whole, ranks=2)
