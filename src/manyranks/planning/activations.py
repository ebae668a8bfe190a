"""Activations: the bytes that forward saves for backward, by formula.

Per token a block saves, in the compute dtype: its input, the normed input that the three
projections share, queries, keys and values, the output of attention, the input of the second norm,
the normed input of the feed-forward layer, and inside it 2 hidden vectors (GELU: input and output)
or 4 (SwiGLU: gate, up, silu(gate), their product). Where heads times head_dim is the width, these
are 6 width + 2 kv_width + 2 or 4 hidden.

For GPT-3 (kv_width = width, hidden = 4 width) these are 16 width numbers, 32 bytes a token and unit
of width. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022
(arXiv 2205.05198), equation 2, has s·b·h·(34 + 5·a·s/h): 34 = 32 + two dropout masks of one byte,
which is no longer used in training. 5·a·s/h is the attention matrix, which FlashAttention does not
keep (Dao et al., 2022).

Tensor parallelism cuts what attention and the feed-forward layer save inside; the inputs of both
and of their norms stay whole on each rank, and sequence parallelism cuts these too (the same paper,
equations 3 and 4).
"""

from dataclasses import dataclass

import torch

from manyranks.planning.decoder import DecoderShape

FLOAT, HALF = torch.float32, torch.bfloat16
# The loss, in float32 numbers per token and word that exist at once in backward: the logits as
# cross_entropy takes them, log-probabilities, their gradient, the gradient of the logits. In bf16
# there are two copies of the logits. Seen for `F.cross_entropy(logits.float(), targets)`.
LOSS_BYTES = 4 * FLOAT.itemsize


@dataclass(frozen=True)
class Saving:
    """How activations are saved.

    `checkpoint`: True keeps only a block's input, "selective" what matrix products and attention
    return (`create_selective_checkpoint_contexts`), False everything. `tensor` ranks share a block,
    and with `sequence` also what is outside of attention and feed-forward layer.
    """

    dtype: torch.dtype = HALF
    checkpoint: bool | str = False
    tensor: int = 1
    sequence: bool = True

    def cut(self, outside: int, inside: int) -> int:
        """What a rank has of numbers outside and inside of attention and feed-forward layer."""
        return outside // (self.tensor if self.sequence else 1) + inside // self.tensor


def hidden_width(shape: DecoderShape) -> int:
    """Width of the feed-forward layers that a token goes through, in a block with experts."""
    experts = shape.experts
    return experts.active * experts.hidden + experts.shared if experts else shape.hidden


def block_bytes(shape: DecoderShape, tokens: int, saving: Saving) -> int:
    """Bytes that one block saves for `tokens` tokens (batch times sequence)."""
    attention = shape.query_width + 2 * shape.kv_width + shape.value_width
    hidden = hidden_width(shape)
    copies = shape.experts.active if shape.experts else 0  # of the input, one for each expert
    if saving.checkpoint == "selective":  # input, and the outputs of projection and down
        outside, inside = 3 * shape.width, attention + (1 + shape.gated) * hidden
    else:
        outside, inside = 4 * shape.width, attention + (2 + 2 * shape.gated) * hidden
    statistics = FLOAT.itemsize * (shape.heads + 2 * (1 + shape.layer_norm))  # attention's, norms'
    numbers = saving.cut((outside + 2 * copies * shape.width) * tokens, inside * tokens)
    return numbers * saving.dtype.itemsize + tokens * statistics


def loss_bytes(shape: DecoderShape, tokens: int, saving: Saving) -> int:
    """Bytes of the logits and of cross entropy: 16 per token and word, 14 in bf16.

    With tensor parallelism each rank has a part of the words (a loss on cut logits).
    """
    size = saving.dtype.itemsize
    per_word = LOSS_BYTES if saving.dtype == FLOAT else LOSS_BYTES - FLOAT.itemsize + size
    return tokens * shape.vocabulary * per_word // saving.tensor


def bytes_at_loss(shape: DecoderShape, tokens: int, saving: Saving) -> int:
    """Bytes when the loss is computed: blocks, the last norm, the logits and the loss."""
    norm_and_output = saving.cut(2 * tokens * shape.width, 0) * saving.dtype.itemsize
    return (
        all_blocks_bytes(shape, tokens, saving)
        + norm_and_output
        + loss_bytes(shape, tokens, saving)
    )


def kept_for_loss(shape: DecoderShape, tokens: int, saving: Saving) -> int:
    """Bytes from the loss to its backward: inputs of last norm and output, log-probabilities."""
    norm_and_output = saving.cut(2 * tokens * shape.width, 0) * saving.dtype.itemsize
    return norm_and_output + tokens * shape.vocabulary * FLOAT.itemsize // saving.tensor


def bytes_in_backward(shape: DecoderShape, tokens: int, saving: Saving) -> int:
    """Bytes when backward enters the last block; a checkpointed block is computed again."""
    recomputed = block_bytes(
        shape, tokens, Saving(saving.dtype, False, saving.tensor, saving.sequence)
    )
    return all_blocks_bytes(shape, tokens, saving) + (recomputed if saving.checkpoint else 0)


def all_blocks_bytes(shape: DecoderShape, tokens: int, saving: Saving) -> int:
    """Bytes that all blocks save; with activation checkpointing, only their inputs."""
    if saving.checkpoint is True:
        return shape.layers * saving.cut(tokens * shape.width, 0) * saving.dtype.itemsize
    return shape.layers * block_bytes(shape, tokens, saving)
