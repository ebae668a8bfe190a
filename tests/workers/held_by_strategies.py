"""What ranks hold in one step, by strategy: measured on real ranks, for any shapes of parameters.

Nothing here computes a size: all bytes are those of tensors that a rank has.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

Shapes = list[tuple[int, ...]]


class Noting(torch.autograd.Function):
    """Does nothing but call `note`, in forward and again in backward."""

    @staticmethod
    def forward(ctx, value, note):
        ctx.note = note
        note()
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.note()
        return gradient, None


class Layer(nn.Module):
    """Parameters of these shapes, all used. `note` is called before and after, both ways."""

    def __init__(self, shapes: Shapes, note) -> None:
        super().__init__()
        self.tensors = nn.ParameterList(torch.ones(shape) for shape in shapes)
        self.note = note

    def forward(self, value: Tensor) -> Tensor:
        value = Noting.apply(value, self.note)
        value = sum((tensor.sum() for tensor in self.tensors), value * 1.0)
        return Noting.apply(value, self.note)


class Model(Layer):
    """A root and its blocks; `most` is how many bytes of parameters were whole at a time."""

    def __init__(self, root: Shapes, blocks: list[Shapes]) -> None:
        super().__init__(root, self.look)
        self.blocks = nn.ModuleList(Layer(shapes, self.look) for shapes in blocks)
        self.most = 0

    def forward(self, value: Tensor) -> Tensor:
        value = super().forward(value)
        for block in self.blocks:
            value = block(value)
        return Noting.apply(value, self.look)

    def look(self) -> None:
        """A parameter that is no DTensor is whole: FSDP exchanges the two."""
        whole = [p for p in self.parameters() if not isinstance(p, DTensor)]
        self.most = max(self.most, sum(p.untyped_storage().nbytes() for p in whole))


def held_by(cases: list[tuple[Shapes, list[Shapes], str]]) -> list[dict[str, int]]:
    """A worker: bytes that this rank holds, for each (root, blocks, strategy)."""
    dist.init_process_group("gloo")
    return [held(*case) for case in cases]


def held(root: Shapes, blocks: list[Shapes], strategy: str) -> dict[str, int]:
    """Bytes that this rank holds in a step of AdamW with this strategy."""
    model = Model(root, blocks)
    replicated = strategy in ("ddp", "zero_1")
    if replicated:
        wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        wrapped = sharded(model, strategy)
    if strategy == "zero_1":
        from torch.distributed.optim import ZeroRedundancyOptimizer  # which warns of torch.jit

        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
    else:
        optimizer = torch.optim.AdamW(model.parameters())
    wrapped(torch.ones((), requires_grad=True)).backward()
    optimizer.step()
    own = optimizer.optim if strategy == "zero_1" else optimizer
    states = [state[name] for state in own.state.values() for name in ("exp_avg", "exp_avg_sq")]
    return {
        "parameters": size(model.parameters()),
        "gradients": size(p.grad for p in model.parameters()),
        "optimizer": size(states),
        "gathered": 0 if replicated else model.most,
    }


def sharded(model: Model, strategy: str) -> nn.Module:
    """`fully_shard` as this strategy asks for it."""
    ranks = dist.get_world_size()
    how = {"mesh": init_device_mesh("cpu", (ranks,))}
    if strategy == "hsdp":
        how["mesh"] = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("copy", "shard"))
    if strategy == "blocks_stay_gathered":
        how["reshard_after_forward"] = False
    if strategy == "bf16":
        how["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in model.blocks if strategy != "one_unit" else ():
        fully_shard(block, **how)
    return fully_shard(model, **how)


def size(tensors: Iterable[Tensor]) -> int:
    """Bytes of these tensors, of DTensors this rank's part."""
    here = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in here)
