"""Chapter 11, long sequences: equal to one process, bytes by formula, refusals in words."""

import pytest
import torch

from ddp_workbook import RankFailed, launch
from ddp_workbook.experiments.model_parallel import causal_work, long_sequences
from ddp_workbook.experiments.model_parallel.long_sequences import RING, ULYSSES


@pytest.mark.parametrize(
    ("way", "order", "ranks"),
    [
        (RING, long_sequences.zigzag, 3),
        (RING, causal_work.one_by_one, 2),
        (ULYSSES, long_sequences.contiguous, 4),
    ],
)
def test_grouped_heads_equal_one_process(way, order, ranks):
    """The page compares as many heads of keys as of queries, on four ranks."""
    parts = launch(long_sequences.forward_and_backward, way, order, key_heads=4, ranks=ranks)
    assert len(parts) == ranks and max(max(part.values()) for part in parts) < 1e-5


def test_what_is_sent_is_what_the_formulas_say():
    """Backward sends the same again; with 2 heads of keys there is nothing for 4 ranks to share."""
    table = long_sequences.bytes_sent(sizes=(4,), key_heads=(8, 2)).set_index("heads of K and V")
    for way, heads, formula in [(RING, 8, "147.5"), (RING, 2, "36.9"), (ULYSSES, 8, "73.7")]:
        assert table.loc[heads, f"{way}: by formula"] == formula
        assert table.loc[heads, f"{way}: forward + backward"] == f"{formula} + {formula}"
    assert table.loc[2, "Ulysses: forward + backward"] == "too few heads"


@pytest.mark.parametrize(
    ("order", "rounds"),
    [("contiguous", [1, 2, 3]), ("zigzag", [3, 3, 3]), (causal_work.ONE_BY_ONE, [3, 3, 3])],
)
def test_in_how_many_rounds_a_rank_computes(order, rounds):
    times = launch(causal_work.round_times, order, ranks=3)
    assert [len(times_of_rank) for times_of_rank in times] == rounds
    assert all(time > 0 for times_of_rank in times for time in times_of_rank)


@pytest.mark.parametrize(
    ("order", "times", "words"),
    [
        ("contiguous", [[1], [1, 1], [1] * 3, [1] * 4], "4 ms. Busy: rank 0 25%; rank 1 50%"),
        ("zigzag", [[1, 0.5, 0.5, 0.5]] * 4, "2.5 ms. Busy: rank 0 100%"),
        ("zigzag", [[3, 1], [1, 1]], "4 ms. Busy: rank 0 100%; rank 1 50%"),  # waits for its block
    ],
    ids=str,
)
def test_rounds_begin_when_the_block_is_there(order, times, words):
    picture = causal_work.work_plot(times, order, ranks=len(times))
    assert f"all ranks done after {words}" in picture.alt


def test_what_cannot_be_shared_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="100 tokens are not 6 equal chunks: pad the sequence"):
        long_sequences.zigzag(0, 3, 100)
    half, full = torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1)
    with pytest.raises(ValueError, match="one dtype, and have float32, bfloat16, float32"):
        long_sequences.ring_attention(full, half, full)
    with pytest.raises(RankFailed, match="8 heads cannot be shared out over 3 ranks alike"):
        launch(long_sequences.forward_and_backward, ULYSSES, ranks=3)


def test_context_parallel_needs_a_gpu():
    """What the page says of PyTorch 2.13 on a CPU."""
    words = [*long_sequences.try_context_parallel(ranks=2)["context_parallel"]]
    assert "_for_cpu.default does not have a sharding strategy" in words[0]
    assert "got mixed torch.Tensor and DTensor" in words[1]
