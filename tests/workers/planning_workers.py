"""Real training steps of small decoders, for what plans say of large ones."""

import gc
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from ddp_workbook.experiments.fully_sharded.strategies import FAKE, group
from manyranks.planning.decoder import GPT, DecoderShape
from manyranks.recording.dispatch_mode import Recorder
from manyranks.recording.memory import MemoryBreakdown, MemoryLedger

# Rows that do not divide by the ranks, grouped queries, a root that is no power of two.
SMALL = DecoderShape("small", 3, 24, 6, 2, 50, 101)
TIED = DecoderShape("tied", 3, 24, 4, 4, 96, 101, positions=16, **GPT)
OPS = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter"}


class Decoder(nn.Module):
    """Token ids [batch, sequence] to logits [batch, sequence, vocabulary]."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.positions = nn.Embedding(shape.positions, shape.width) if shape.positions else None
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = norm(shape)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.output(self.norm(x))


class Block(nn.Module):
    """Attention and a feed-forward layer, each with its norm and its residual: [b, s, width]."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.heads, self.kv_heads, bias = shape.heads, shape.kv_heads, bool(shape.biases)
        self.attention_norm = norm(shape)
        self.query = nn.Linear(shape.width, shape.query_width, bias=bias)
        self.key = nn.Linear(shape.width, shape.kv_width, bias=bias)
        self.value = nn.Linear(shape.width, shape.kv_width, bias=bias)
        self.projection = nn.Linear(shape.value_width, shape.width, bias=bias)
        self.forward_norm = norm(shape)
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False) if shape.gated else None
        self.up = nn.Linear(shape.width, shape.hidden, bias=bias)
        self.down = nn.Linear(shape.hidden, shape.width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.projection(self.attend(self.attention_norm(x)))
        y = self.forward_norm(x)
        hidden = F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        return x + self.down(hidden)

    def attend(self, x: Tensor) -> Tensor:
        heads = ((self.query, self.heads), (self.key, self.kv_heads), (self.value, self.kv_heads))
        query, key, value = (of(x).unflatten(-1, (n, -1)).transpose(1, 2) for of, n in heads)
        grouped = self.heads != self.kv_heads
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
        return y.transpose(1, 2).flatten(2)


def norm(shape: DecoderShape) -> nn.Module:
    return nn.LayerNorm(shape.width) if shape.layer_norm else nn.RMSNorm(shape.width)


def on_fake_ranks(
    shape: DecoderShape, ranks: int, **ways: Any
) -> tuple[MemoryBreakdown, list[tuple]]:
    """What rank 0 of `ranks` fake ranks holds in its third step, and (op, bytes, received)."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with group(FAKE, ranks):
        model = sharded(Decoder(shape), **ways)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        token = torch.zeros(1, 1, dtype=torch.int64)
        for _ in range(2):
            step(model, optimizer, token)
        gc.collect()
        rows: list[dict] = []
        with Recorder(rows), MemoryLedger(model, optimizer) as ledger:
            step(model, optimizer, token)
    calls = [(OPS.get(row["op"], row["op"]), row["bytes"], row["received"]) for row in rows]
    return ledger.held, calls


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor) -> None:
    """One step; `zero_grad` comes last, so that the next one begins without gradients."""
    F.cross_entropy(model(batch).flatten(0, 1).float(), batch.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()


def sharded(
    model: Decoder,
    shards: int | None = None,
    offload: bool = False,
    dtypes: tuple[torch.dtype | None, torch.dtype | None] = (None, None),
    reshard_after_forward: bool | int = True,
    split_root: bool = False,
) -> nn.Module:
    """The model, ready to train."""
    ranks = dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,))
    if shards:
        names = ("replicate", "shard")
        mesh = init_device_mesh("cpu", (ranks // shards, shards), mesh_dim_names=names)
    policies: dict[str, Any] = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(*dtypes)}
    if offload:
        policies["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    ends = ([model.embedding], [model.norm, model.output]) if split_root else ()
    for unit in (*([block] for block in model.blocks), *ends):
        fully_shard(unit, reshard_after_forward=reshard_after_forward, **policies)
    return fully_shard(model, **policies)


def over_micro_batches(
    shape: DecoderShape, ranks: int, dtypes: tuple[torch.dtype | None, torch.dtype | None]
) -> MemoryBreakdown:
    """What rank 0 of `ranks` fake ranks holds in the third micro-batch, as a stage of a pipeline.

    As PipelineStage.backward_maybe_with_nosync has it: nothing is freed or reduced before the last.
    """
    with group(FAKE, ranks, torch.device("cpu")):
        model = sharded(Decoder(shape), dtypes=dtypes, reshard_after_forward=False)
        model.set_reshard_after_backward(False)
        model.set_requires_gradient_sync(False)
        token = torch.zeros(1, 1, dtype=torch.int64)

        def micro_batch() -> None:
            F.cross_entropy(model(token).flatten(0, 1).float(), token.flatten()).backward()

        micro_batch()
        micro_batch()
        gc.collect()
        with MemoryLedger(model) as ledger:
            micro_batch()
    return ledger.held
