"""Ranks that share a block or a pipeline, for what plans say of large ones."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

BATCH, SEQUENCE, WIDTH, HIDDEN = 2, 6, 8, 12
SCHEDULES = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
}


class FeedForward(nn.Module):
    """Two matrices; two of these communicate as often as a block's attention and feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


def step_of_a_cut_block(sequence_parallel: bool) -> None:
    """Forward and backward of a block that all ranks share, in float32."""
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    block = nn.Sequential(FeedForward(), FeedForward())
    ways = {}
    for name in ("0", "1"):
        whole = Shard(1) if sequence_parallel else Replicate()
        ways |= {
            name: PrepareModuleInput(input_layouts=whole, desired_input_layouts=Replicate()),
            f"{name}.up": ColwiseParallel(),
            f"{name}.down": RowwiseParallel(output_layouts=whole),
        }
    block = parallelize_module(block, init_device_mesh("cpu", (ranks,)), ways)
    tokens = SEQUENCE // ranks if sequence_parallel else SEQUENCE
    block(torch.ones(BATCH, tokens, WIDTH, requires_grad=True)).sum().backward()
    dist.destroy_process_group()


def step_of_a_pipeline(schedule: str, stages: int, micro_batches: int) -> int:
    """How many micro-batches x stages this rank kept activations of at most."""
    dist.init_process_group("gloo")
    rank, ranks, kept, most = dist.get_rank(), dist.get_world_size(), [], 0
    example = torch.ones(1, WIDTH)
    for index in range(rank, ranks * stages, ranks):
        layer = nn.Linear(WIDTH, WIDTH)
        stage = PipelineStage(layer, index, ranks * stages, torch.device("cpu"))
        kept.append(stage)
        layer.register_forward_hook(lambda *_: count())

    def count() -> None:
        nonlocal most
        most = max(most, 1 + sum(len(stage.fwd_cache) for stage in kept))

    of_rank = kept if stages > 1 else kept[0]
    made = SCHEDULES[schedule](of_rank, micro_batches, loss_fn=F.mse_loss)
    batch = example.repeat(micro_batches, 1)
    last = rank == ranks - 1
    made.step(*[batch] * (rank == 0), **({"target": batch} if last else {}))
    dist.destroy_process_group()
    return most


def clip_cut_and_whole() -> None:
    """Clip the gradients of a model with cut and with whole layers, sharded as on page 11."""
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4), nn.LayerNorm(4))
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    fully_shard(parallelize_module(model, mesh["tensor"], plan), mesh=mesh["data"])
    model(torch.ones(2, 4)).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
