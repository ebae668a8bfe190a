"""Activations: the bytes that forward saves for backward, by formula.

Per token a block saves, in the compute dtype: its input, the normed input that the three
projections share, queries, keys and values, the output of attention, the input of the second norm,
the normed input of the feed-forward layer, and inside it 2 hidden vectors (GELU: input and output)
or 4 (SwiGLU: gate, up, silu(gate), their product). So 6 width + 2 kv_width + 2 or 4 hidden.

For GPT-3 (kv_width = width, hidden = 4 width) these are 16 width numbers, 32 bytes a token and unit
of width. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022
(arXiv 2205.05198), equation 2, has s·b·h·(34 + 5·a·s/h): 34 = 32 + two dropout masks of one byte,
which is no longer used in training. 5·a·s/h is the attention matrix, which FlashAttention does not
keep (Dao et al., 2022).
"""

import torch

from ddp_workbook.planning.decoder import DecoderShape

FLOAT, HALF = torch.float32, torch.bfloat16
# The loss, in float32 numbers per token and word that exist at once in backward: the logits as
# cross_entropy takes them, log-probabilities, their gradient, the gradient of the logits. In bf16
# there are two copies of the logits. Seen for `F.cross_entropy(logits.float(), targets)`.
OF_LOSS = 4 * FLOAT.itemsize


def saved_by_block(shape: DecoderShape, tokens: int, dtype: torch.dtype = HALF) -> int:
    """Bytes that one block saves for `tokens` tokens (batch times sequence)."""
    numbers = 6 * shape.width + 2 * shape.kv_width + (2 if shape.gpt else 4) * shape.hidden
    statistics = FLOAT.itemsize * (shape.heads + (4 if shape.gpt else 2))  # attention's, norms'
    return tokens * (numbers * dtype.itemsize + statistics)


def of_loss(shape: DecoderShape, tokens: int, dtype: torch.dtype = HALF) -> int:
    """Bytes of the logits and of cross entropy: 16 per token and word, 14 in bf16."""
    per_word = OF_LOSS if dtype == FLOAT else OF_LOSS - FLOAT.itemsize + dtype.itemsize
    return tokens * shape.vocabulary * per_word


def at_the_loss(shape: DecoderShape, tokens: int, dtype: torch.dtype, checkpoint: bool) -> int:
    """Bytes when the loss is computed: blocks, the last norm, the logits and the loss."""
    norm_and_output = 2 * tokens * shape.width * dtype.itemsize
    saved = by_all_blocks(shape, tokens, dtype, checkpoint)
    return saved + norm_and_output + of_loss(shape, tokens, dtype)


def in_backward(shape: DecoderShape, tokens: int, dtype: torch.dtype, checkpoint: bool) -> int:
    """Bytes when backward enters the last block; a checkpointed block is computed again."""
    again = saved_by_block(shape, tokens, dtype) if checkpoint else 0
    return by_all_blocks(shape, tokens, dtype, checkpoint) + again


def by_all_blocks(shape: DecoderShape, tokens: int, dtype: torch.dtype, checkpoint: bool) -> int:
    """Bytes that all blocks save; with activation checkpointing, only their inputs."""
    if checkpoint:
        return shape.layers * tokens * shape.width * dtype.itemsize
    return shape.layers * saved_by_block(shape, tokens, dtype)
