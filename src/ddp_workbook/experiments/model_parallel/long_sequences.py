"""Causal attention over a sequence that ranks share: a ring of keys and values, and Ulysses.

Queries, keys and values are [heads, tokens, width], and a rank has some of the tokens. There may be
fewer heads of keys and values than of queries.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from manyranks.launcher.launch import launch
from manyranks.recording.collectives import run_and_record

SEED = 0
TOKENS, WIDTH = 192, 16
HEADS = 8  # of queries
RING, ULYSSES = "ring", "Ulysses"
Order = Callable[[int, int, int], Tensor]  # rank, ranks, tokens: which of the tokens are the rank's


# The ring


def chunks(tokens: int, number: int) -> list[Tensor]:
    """The places 0 to tokens - 1 in so many equal parts."""
    if tokens % number:
        raise ValueError(f"{tokens} tokens are not {number} equal chunks: pad the sequence")
    return [*torch.arange(tokens).chunk(number)]


def contiguous(rank: int, ranks: int, tokens: int) -> Tensor:
    """One chunk for each rank."""
    return chunks(tokens, ranks)[rank]


def zigzag(rank: int, ranks: int, tokens: int) -> Tensor:
    """Two chunks for each rank: one from the front, and its counterpart from the back."""
    cut = chunks(tokens, 2 * ranks)
    return torch.cat([cut[rank], cut[-1 - rank]])


class PassOn(torch.autograd.Function):
    """Send `block` to the next rank of the ring, and return the one of the previous rank.

    `out` stays as it is. It comes along so that backward takes the way through every pass, also on
    a rank that does not use the block: the rank that sent it waits for its gradient.
    """

    @staticmethod
    def forward(ctx, block: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        return shift(block, 1), out.view_as(out)

    @staticmethod
    def backward(ctx, block_gradient: Tensor, out_gradient: Tensor) -> tuple[Tensor, Tensor]:
        return shift(block_gradient, -1), out_gradient  # to the rank that had sent the block


def shift(tensor: Tensor, step: int) -> Tensor:
    """What the rank `step` places before this one has."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tensor, arriving = tensor.contiguous(), torch.empty_like(tensor)
    sending = dist.P2POp(dist.isend, tensor, (rank + step) % ranks)
    receiving = dist.P2POp(dist.irecv, arriving, (rank - step) % ranks)
    for work in dist.batch_isend_irecv([sending, receiving]):  # both at once: no rank goes first
        work.wait()
    return arriving


def check_dtypes(*parts: Tensor) -> None:
    """Refuse a mixture: stacked or multiplied, some of them would change their dtype silently."""
    if len({part.dtype for part in parts}) > 1:
        dtypes = ", ".join(str(part.dtype).removeprefix("torch.") for part in parts)
        raise ValueError(f"query, key and value must have one dtype, and have {dtypes}")


def attend(query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Attention to these keys alone, and the logarithm of each row's sum of exponentials."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    scores = scores.masked_fill(~visible, -torch.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1, keepdim=True)


def merge(a: Tensor, a_log_sum: Tensor, b: Tensor, b_log_sum: Tensor) -> tuple[Tensor, Tensor]:
    """Attention to some keys and to some others becomes attention to all of them."""
    log_sum = torch.logaddexp(a_log_sum, b_log_sum)
    return a * (a_log_sum - log_sum).exp() + b * (b_log_sum - log_sum).exp(), log_sum


def ring_attention(query: Tensor, key: Tensor, value: Tensor, order: Order = zigzag) -> Tensor:
    """Causal attention of this rank's queries to the keys and values of all ranks."""
    check_dtypes(query, key, value)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tokens = ranks * query.shape[1]
    own = order(rank, ranks, tokens)  # which tokens of the sequence this rank has
    block = torch.stack([key, value])
    out, log_sum = torch.zeros_like(query), torch.full_like(query[..., :1], -torch.inf)
    for distance in range(ranks):
        if distance > 0:
            block, out = PassOn.apply(block, out)
        # The block is now that of the rank so far before this one.
        visible = own[:, None] >= order((rank - distance) % ranks, ranks, tokens)
        # Queries that see none of its keys are left out, and keys that no query sees.
        rows, columns = visible.any(1).nonzero()[:, 0], visible.any(0).nonzero()[:, 0]
        if len(rows) == 0:
            continue  # all tokens of this block come later
        keys, values = block[:, :, columns].repeat_interleave(len(query) // len(key), dim=1)
        part = attend(query[:, rows], keys, values, visible[rows][:, columns])
        new_out, new_log_sum = merge(out[:, rows], log_sum[:, rows], *part)
        out, log_sum = out.index_copy(1, rows, new_out), log_sum.index_copy(1, rows, new_log_sum)
    return out


# Ulysses


class Exchange(torch.autograd.Function):
    """Piece p of rank r becomes piece r of rank p; backward, they go back in the same way."""

    @staticmethod
    def forward(ctx, pieces: Tensor) -> Tensor:
        arriving = torch.empty_like(pieces)
        dist.all_to_all_single(arriving, pieces.contiguous())
        return arriving

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return Exchange.forward(ctx, gradient.contiguous())


def to_heads(part: Tensor) -> Tensor:
    """All heads of this rank's tokens become some heads of all tokens."""
    ranks = dist.get_world_size()
    if len(part) % ranks:
        raise ValueError(f"{len(part)} heads cannot be shared out over {ranks} ranks alike")
    pieces = part.unflatten(0, (ranks, -1))
    return torch.cat([*Exchange.apply(pieces)], dim=1)


def to_tokens(part: Tensor) -> Tensor:
    """And back."""
    pieces = torch.stack(part.chunk(dist.get_world_size(), dim=1))
    return Exchange.apply(pieces).flatten(0, 1)


def ulysses(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The same as `ring_attention`, of a contiguous order."""
    check_dtypes(query, key, value)
    heads = to_heads(query), to_heads(key), to_heads(value)
    return to_tokens(F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True))


# Beside one process


class Shared(NamedTuple):
    """A sequence on this rank: all of it with its attention, and this rank's part."""

    whole: list[Tensor]  # query, key, value
    expected: Tensor
    weights: Tensor  # the gradient of the output, so that there is something to go back
    own: Tensor  # which tokens are this rank's
    part: list[Tensor]


def shared_sequence(order: Order, heads: int, key_heads: int, tokens: int = TOKENS) -> Shared:
    """The same sequence on all ranks, from one seed, and this rank's share of it."""
    device = setup()
    random = torch.Generator().manual_seed(SEED)
    shapes = [(number, tokens, WIDTH) for number in (heads, key_heads, key_heads)]
    whole = [torch.randn(s, generator=random).to(device).requires_grad_() for s in shapes]
    expected = F.scaled_dot_product_attention(*whole, is_causal=True, enable_gqa=True)
    weights = torch.randn(expected.shape, generator=random).to(device)
    own = order(dist.get_rank(), dist.get_world_size(), tokens)
    part = [tensor[:, own].detach().requires_grad_() for tensor in whole]
    return Shared(whole, expected, weights, own, part)


def forward_and_backward(
    way: str, order: Order = contiguous, heads: int = HEADS, key_heads: int = HEADS
) -> dict[str, float]:
    """How far output and gradients of this rank's tokens are from those of one process, at most."""
    shared = shared_sequence(order, heads, key_heads)
    attention = ulysses if way == ULYSSES else partial(ring_attention, order=order)
    out = attention(*shared.part)
    dist.barrier()  # separates what forward sends from what backward sends
    out.backward(shared.weights[:, shared.own])
    shared.expected.backward(shared.weights)
    pairs = {"output": (out, shared.expected)} | {
        f"gradient of {name}": (part.grad, whole.grad)
        for name, part, whole in zip("QKV", shared.part, shared.whole, strict=True)
    }
    cleanup()
    return {
        name: (part - whole[:, shared.own]).abs().max().item()
        for name, (part, whole) in pairs.items()
    }


def compare(ranks: int = 4) -> pd.DataFrame:
    """For each way, how far the furthest rank is from one process."""
    ways = {
        "ring, contiguous": (RING, contiguous),
        "ring, zigzag": (RING, zigzag),
        "Ulysses": (ULYSSES, contiguous),
    }
    furthest = {
        name: pd.DataFrame(launch(forward_and_backward, *way, ranks=ranks)).max()
        for name, way in ways.items()
    }
    return pd.DataFrame(furthest).T


# What is sent


def bytes_by_formula(way: str, ranks: int, key_heads: int) -> float:
    """What a rank sends forward; a share is one head of the tokens that a rank has."""
    share = TOKENS // ranks * WIDTH * 4
    if way == RING:
        return 2 * key_heads * (ranks - 1) * share  # K and V, in each round
    return (2 * HEADS + 2 * key_heads) * (ranks - 1) / ranks * share  # Q, K, V and the output


def sent(wire: pd.DataFrame, ranks: int) -> tuple[float, float]:
    """Bytes that rank 0 has sent before its first barrier, and after it."""
    rows = wire[wire["rank"] == 0]
    barrier = rows.loc[rows["op"] == "barrier", "seq"].min()
    size = rows["bytes"].where(rows["op"] != "all_to_all_single", rows["bytes"] * (1 - 1 / ranks))
    size = size[rows["op"].isin(["send", "all_to_all_single"])]
    return size[rows["seq"] < barrier].sum(), size[rows["seq"] > barrier].sum()


def bytes_sent(sizes: Sequence[int] = (2, 4), key_heads: Sequence[int] = (8, 4, 2)) -> pd.DataFrame:
    """What a rank sends in one attention of 8 heads, by formula and as recorded, in kB."""
    rows = []
    for ranks, number in itertools.product(sizes, key_heads):
        row: dict[str, object] = {"ranks": ranks, "heads of K and V": number}
        for way in (RING, ULYSSES):
            if way == ULYSSES and number % ranks:
                values = "", "too few heads"
            else:
                worker = forward_and_backward
                _, wire = run_and_record(worker, way, key_heads=number, ranks=ranks)
                forward, backward = (f"{size / 1e3:.1f}" for size in sent(wire, ranks))
                by_formula = bytes_by_formula(way, ranks, number) / 1e3
                values = f"{by_formula:.1f}", f"{forward} + {backward}"
            row |= {f"{way}: by formula": values[0], f"{way}: forward + backward": values[1]}
        rows.append(row)
    return pd.DataFrame(rows)


# PyTorch's own


def with_context_parallel(plain: bool) -> str:
    """What `context_parallel` says to one attention, with its plain kernel or PyTorch's choice."""
    device = setup()
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    torch.manual_seed(SEED)
    parts = [torch.randn(1, HEADS, TOKENS, WIDTH, device=device) for _ in range(3)]
    chosen = sdpa_kernel(SDPBackend.MATH) if plain else nullcontext()
    try:
        with chosen, context_parallel(mesh, buffers=parts, buffer_seq_dims=[2, 2, 2]):
            out = F.scaled_dot_product_attention(*parts, is_causal=True)
        words = f"runs: each rank has {out.shape[2]} of {TOKENS} tokens"
    except (NotImplementedError, RuntimeError) as error:
        words = f"{type(error).__name__}: {error}"
    cleanup()
    return words


def try_context_parallel(ranks: int = 2) -> pd.DataFrame:
    """By kernel: what came of it on rank 0."""
    kernels = {"PyTorch's choice": False, "plain (SDPBackend.MATH)": True}
    rows = {name: launch(with_context_parallel, k, ranks=ranks)[0] for name, k in kernels.items()}
    return pd.DataFrame(rows.items(), columns=["kernel of attention", "context_parallel"])
