"""A transformer block that ranks compute together: by hand, and by `parallelize_module`.

What a page counts is of one block, forward and backward, on the same rows on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from ddp_workbook.chapters.digits import SIDE, Block
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.model_parallel import COLUMNS_THEN_ROWS, SEED
from manyranks.launcher.launch import launch
from manyranks.recording.collectives import run_and_record

ROWS, WIDTH = 16, 64
BY_HAND, PYTORCH, SEQUENCE = "by hand", "parallelize_module", "with sequence parallel"
CALLS = {"all_reduce": 2, "all_gather_into_tensor": 1, "reduce_scatter_tensor": 1}
OUTSIDE, INSIDE = "outside: on tokens that all ranks have", "inside: on a rank's own hidden units"
DROPOUT = 0.1


class CopyToRanks(torch.autograd.Function):
    """Into the cut part: every rank has the input already; backward adds up its gradients."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        dist.all_reduce(gradient)  # each rank has only what went through its own columns
        return gradient


class AddUpRanks(torch.autograd.Function):
    """Out of the cut part: forward adds up the ranks' outputs; backward has nothing to do."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)  # each rank has only what came of its own rows
        return x

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient


class Columns(nn.Linear):
    """A rank's share of the outputs of a layer."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(CopyToRanks.apply(x), self.weight, self.bias)


class Rows(nn.Linear):
    """A rank's share of the inputs of a layer; the bias counts once, after the sum."""

    def forward(self, x: Tensor) -> Tensor:
        return AddUpRanks.apply(F.linear(x, self.weight)) + self.bias


def cut_by_hand(block: Block, rank: int, ranks: int) -> Block:
    """Replace the layers of a block by this rank's shares, in place."""
    for name, kind in BY_HAND_PLAN.items():
        layer = block.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        # A Linear keeps its weight as [outputs, inputs]: its columns, as in x @ W, are rows there.
        weight = layer.weight.chunk(ranks, 0 if kind is Columns else 1)[rank]
        share = kind(weight.shape[1], weight.shape[0], bias=layer.bias is not None)
        share.weight = nn.Parameter(weight.detach().clone())
        if layer.bias is not None:
            bias = layer.bias.chunk(ranks)[rank] if kind is Columns else layer.bias
            share.bias = nn.Parameter(bias.detach().clone())
        block.set_submodule(name, share)
    return block


BY_HAND_PLAN: dict[str, type[Columns] | type[Rows]] = {
    "query_key_value": Columns,
    "attention_output": Rows,
    "mlp.0": Columns,
    "mlp.2": Rows,
}
# What outside of the cut part every rank computes alike is shared out, too: each has some tokens.
SHARED_TOKENS = {
    "norm_1": SequenceParallel(),
    "norm_2": SequenceParallel(),
    "query_key_value": ColwiseParallel(input_layouts=Shard(1)),
    "attention_output": RowwiseParallel(output_layouts=Shard(1)),
    "mlp.0": ColwiseParallel(input_layouts=Shard(1)),
    "mlp.2": RowwiseParallel(output_layouts=Shard(1)),
}


class OneBlock(NamedTuple):
    """What came of forward and backward of one block on a rank."""

    between: int  # bytes of the tokens that go from block to block, on this rank
    difference: float  # of output and gradients from one process, at most


def one_block(way: str) -> OneBlock:
    """Forward and backward of a block, cut in this way, on random tokens."""
    device = setup()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole, cut = seeded_block().to(device), seeded_block().to(device)
    tokens = torch.randn(ROWS, SIDE, WIDTH).to(device)
    expected = run_block(whole, tokens)
    if way == BY_HAND:
        cut_by_hand(cut, rank, ranks)
    else:
        plan = SHARED_TOKENS if way == SEQUENCE else COLUMNS_THEN_ROWS
        parallelize_module(cut, init_device_mesh(device.type, (ranks,)), plan)
    mine = tokens.chunk(ranks, 1)[rank].contiguous() if way == SEQUENCE else tokens
    found = run_block(cut, mine)
    furthest = difference(found, expected, rank, ranks)
    cleanup()
    return OneBlock(mine.nbytes, furthest)


def seeded_block() -> Block:
    """The same on every rank."""
    torch.manual_seed(SEED)
    return Block(WIDTH)


def run_block(block: Block, tokens: Tensor) -> dict[str, Tensor]:
    """Output, gradient of the tokens, and gradients of the parameters, each by its name."""
    tokens = tokens.detach().clone().requires_grad_()
    output = block(tokens)
    output.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in block.named_parameters()}
    return {"output": output.detach(), "tokens": tokens.grad} | gradients


def difference(
    found: dict[str, Tensor], expected: dict[str, Tensor], rank: int, ranks: int
) -> float:
    """The largest one, of each tensor in parts of the size of its largest number.

    A rank's share is compared with the same share of the whole tensor.
    """
    most = 0.0
    for name, whole in expected.items():
        own = found[name]
        own = own.full_tensor() if isinstance(own, DTensor) else own
        for dimension in range(whole.dim()):
            if own.shape[dimension] != whole.shape[dimension]:
                whole = whole.chunk(ranks, dimension)[rank]
        most = max(most, ((own - whole).abs().max() / whole.abs().max()).item())
    return most


def count(ways: Sequence[str] = (BY_HAND, PYTORCH, SEQUENCE), ranks: int = 2) -> pd.DataFrame:
    """For each way: rank 0's calls with tokens in one block, their bytes in a ring, and the rest.

    Not counted are those that share out the weights, and those of the comparison.
    """
    rows = {}
    for way in ways:
        results, wire = run_and_record(one_block, way, ranks=ranks)
        tokens = wire[(wire["rank"] == 0) & wire["shape"].map(lambda shape: len(shape or ()) == 3)]
        calls = tokens["op"].value_counts()
        # An all-reduce is a reduce-scatter and an all-gather of all tokens.
        size = (
            sum(calls.get(op, 0) * times for op, times in CALLS.items()) * ROWS * SIDE * WIDTH * 4
        )
        rows[way] = {
            **{
                op.removesuffix("_into_tensor").removesuffix("_tensor"): calls.get(op, 0)
                for op in CALLS
            },
            "kB sent by a rank in a ring": round(size * (ranks - 1) / ranks / 1e3, 1),
            "kB of tokens from block to block": round(results[0].between / 1e3, 1),
            "furthest from one process": max(result.difference for result in results),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


# Dropout


def masks(place: str, same_seed: bool) -> Tensor:
    """What this rank's dropout keeps, of tokens or of its hidden units."""
    setup()
    torch.manual_seed(SEED if same_seed else SEED + dist.get_rank())
    hidden = 4 * WIDTH // dist.get_world_size()
    kept = F.dropout(torch.ones(ROWS, SIDE, WIDTH if place == OUTSIDE else hidden), DROPOUT) > 0
    cleanup()
    return kept


def dropout(ranks: int = 2) -> pd.DataFrame:
    """For each place and seed: how much of two ranks' masks is equal, and what that means."""
    meaning = {
        (OUTSIDE, True): "right: all ranks go on with the same tokens",
        (OUTSIDE, False): "wrong: copies that should be equal drift apart",
        (INSIDE, True): "wrong: unit n of each rank is dropped together",
        (INSIDE, False): "right: each unit is dropped by itself, as in one process",
    }
    rows = []
    for (place, same), words in meaning.items():
        first, second, *_ = launch(masks, place, same, ranks=ranks)
        equal = (first == second).float().mean().item()
        rows.append((place, "the same" if same else "its own", f"{equal:.0%}", words))
    columns = ["dropout", "seed of a rank", "masks that agree", "so this is"]
    return pd.DataFrame(rows, columns=columns)
