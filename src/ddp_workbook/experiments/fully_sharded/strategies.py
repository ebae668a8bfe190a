"""The ways to share a model that chapter 06 compares: how each wraps it, and its formulas."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ddp_workbook.chapters.fully_sharded import LEARNING_RATE
from ddp_workbook.digits import DigitsTransformer
from ddp_workbook.planning import formulas
from ddp_workbook.planning.formulas import Ledger
from ddp_workbook.planning.fsdp_step import FsdpStep, Message
from ddp_workbook.planning.messages import ddp_messages, zero_1_messages
from ddp_workbook.planning.shards import Units

ROOT_FIRST = 3  # position, and embedding's two: the root's parameters that a step uses first
BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
FAKE = "fake"  # the backend of a world in which nothing is sent


class Recomputed(nn.Module):
    """A block that keeps nothing but its input for backward, where it runs forward again."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, tokens: Tensor) -> Tensor:
        """The block's own output."""
        return checkpoint(self.block, tokens, use_reentrant=False)


@dataclass(frozen=True)
class Strategy:
    """A way of training: `fully_shard` by block with these `policies`, unless `kind` is another.

    `replicas` groups of ranks hold the same (HSDP). `autocast` computes in bf16 without a policy. A
    strategy with `needs` is measured at this number of ranks only, another one at any. DDP does not
    run in a fake world (torch 2.13): its model is plain there, without buckets.
    """

    name: str
    kind: str = "fully_shard"  # or "one process", "DDP", "ZeRO-1"
    policies: Mapping[str, Any] = field(default_factory=dict)
    offload: bool = False
    checkpointing: bool = False
    autocast: bool = False
    replicas: int = 1
    needs: int | None = None

    def wrap(self, model: DigitsTransformer, device: torch.device) -> nn.Module:
        """The model, ready to be trained."""
        if self.checkpointing:
            model.blocks = nn.ModuleList(Recomputed(block) for block in model.blocks)
        if self.kind == "one process":
            return model
        if self.kind in ("DDP", "ZeRO-1"):
            if dist.get_backend() == FAKE:
                return model
            ids = [device] if device.type == "cuda" else None
            return DistributedDataParallel(model, device_ids=ids, **self.policies)
        mesh, policies = self.mesh(device), dict(self.policies)
        if self.offload:  # pinned memory needs an accelerator
            policies["offload_policy"] = CPUOffloadPolicy(pin_memory=device.type == "cuda")
        for block in model.blocks:
            fully_shard(block, mesh=mesh, **policies)
        of_root = {k: v for k, v in policies.items() if k != "reshard_after_forward"}
        return fully_shard(model, mesh=mesh, **of_root)  # by default the root stays whole

    def mesh(self, device: torch.device) -> DeviceMesh:
        """All ranks in a row; for HSDP `replicas` rows, each with the whole model."""
        ranks = dist.get_world_size()
        if self.replicas == 1:
            return init_device_mesh(device.type, (ranks,))
        shape = (self.replicas, ranks // self.replicas)
        return init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW on all parameters, or on this rank's part of them."""
        if self.kind == "ZeRO-1":
            # Imported here: it brings TorchScript along, which warns that it is deprecated.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                from torch.distributed.optim import ZeroRedundancyOptimizer

            sharded = {"optimizer_class": torch.optim.AdamW, "lr": LEARNING_RATE}
            return ZeroRedundancyOptimizer(model.parameters(), **sharded)
        return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)

    def predicted(self, units: Units, ranks: int, rank: int = 0) -> Ledger:
        """The bytes by formula, without activations."""
        if self.kind == "one process":
            return formulas.one_process(units)
        if self.kind == "DDP":
            return formulas.ddp(units)
        if self.kind == "ZeRO-1":
            return formulas.zero_1(units, ranks, rank)
        shards = ranks // self.replicas
        known = {"root_first": ROOT_FIRST} | self.known
        return formulas.fully_sharded(units, shards, rank % shards, offload=self.offload, **known)

    def messages(self, units: Units, ranks: int) -> list[Message]:
        """The calls of a step by formula."""
        if self.kind == "one process":
            return []
        if self.kind == "DDP":
            return ddp_messages(units, ranks, root_first=ROOT_FIRST)
        if self.kind == "ZeRO-1":
            return zero_1_messages(units, ranks, root_first=ROOT_FIRST)
        shards = ranks // self.replicas
        return FsdpStep(units, shards, replicas=self.replicas, **self.known).messages

    @property
    def known(self) -> dict[str, Any]:
        """`fully_shard`'s policies as the formulas take them."""
        found = {key: self.policies[key] for key in self.policies if key == "reshard_after_forward"}
        if policy := self.policies.get("mp_policy"):
            found |= {"param_dtype": policy.param_dtype, "reduce_dtype": policy.reduce_dtype}
        return found


STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy("one process", "one process"),
        Strategy("DDP", "DDP"),
        Strategy("ZeRO-1", "ZeRO-1"),
        Strategy("fully_shard"),
        Strategy("blocks stay whole", policies={"reshard_after_forward": False}),
        Strategy("reshard to 2", policies={"reshard_after_forward": 2}, needs=4),
        Strategy("bf16", policies={"mp_policy": BF16}),
        Strategy("CPU offload", offload=True),
        Strategy("checkpointing", checkpointing=True),
        Strategy("HSDP, 2 x 2", replicas=2, needs=4),
    )
}


def units_of(model: DigitsTransformer) -> Units:
    """Shapes of the parameters that are gathered together: the root's, then each block's."""
    inside = {id(parameter) for parameter in model.blocks.parameters()}
    root = [p.shape for p in model.parameters() if id(p) not in inside]
    return [root, *([p.shape for p in block.parameters()] for block in model.blocks)]
