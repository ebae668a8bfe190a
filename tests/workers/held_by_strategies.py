"""What ranks hold in one step, by strategy: measured on real ranks, for any shapes of parameters.

Nothing here computes a size: all bytes are those of tensors that a rank has.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ddp_workbook.experiments.fully_sharded.strategies import Strategy
from manyranks.recording.memory import MemoryLedger

Shapes = list[tuple[int, ...]]


VIEWS = {"gradient_as_bucket_view": True}
STRATEGIES = {
    "ddp": Strategy("", "DDP", VIEWS),
    "zero_1": Strategy("", "ZeRO-1", VIEWS),
    "blocks_stay_gathered": Strategy("", policies={"reshard_after_forward": False}),
    "zero_3": Strategy(""),
    "one_unit": Strategy("", "one unit"),
    "hsdp": Strategy("", replicas=2),
    "bf16": Strategy("", precision="bf16"),
}


class Layer(nn.Module):
    """Parameters of these shapes, all used."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.tensors = nn.ParameterList(torch.ones(shape) for shape in shapes)

    def forward(self, value: Tensor) -> Tensor:
        return sum((tensor.sum() for tensor in self.tensors), value * 1.0)


class Model(Layer):
    """A root and its blocks."""

    def __init__(self, root: Shapes, blocks: list[Shapes]) -> None:
        super().__init__(root)
        self.blocks = nn.ModuleList(map(Layer, blocks))

    def forward(self, value: Tensor) -> Tensor:
        value = super().forward(value)
        for block in self.blocks:
            value = block(value)
        return value


def measure_cases(cases: list[tuple[Shapes, list[Shapes], str]]) -> list[dict[str, int]]:
    """A worker: bytes that this rank holds, for each (root, blocks, strategy)."""
    dist.init_process_group("gloo")
    return [bytes_by_kind(*case) for case in cases]


def bytes_by_kind(root: Shapes, blocks: list[Shapes], strategy: str) -> dict[str, int]:
    """Bytes that this rank holds in a step of AdamW with this strategy."""
    model = Model(root, blocks)
    strategy_model = STRATEGIES[strategy].wrap(model, torch.device("cpu"))
    optimizer = STRATEGIES[strategy].optimizer(model)
    with MemoryLedger(model) as ledger:
        strategy_model(torch.ones((), requires_grad=True)).backward()
    optimizer.step()
    own = optimizer.optim if strategy == "zero_1" else optimizer
    states = [state[name] for state in own.state.values() for name in ("exp_avg", "exp_avg_sq")]
    return {
        "parameters": size(model.parameters()),
        "gradients": size(p.grad for p in model.parameters()),
        "optimizer": size(states),
        "gathered": max(sum(moment.whole.values()) for moment in ledger.timeline),
    }


def size(tensors: Iterable[Tensor]) -> int:
    """Bytes of these tensors, of DTensors this rank's part."""
    here = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in here)
