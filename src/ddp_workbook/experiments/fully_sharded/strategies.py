"""The ways to share a model that chapter 06 compares: how each wraps it, its formulas, its step."""

import gc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.fully_sharded import LEARNING_RATE, SEED
from ddp_workbook.chapters.fully_sharded_by_hand import FullyShardedByHand
from manyranks.planning import formulas
from manyranks.planning.formulas import MemoryEstimate, Policy
from manyranks.planning.messages import Message, ddp_messages, fsdp_messages, zero_1_messages
from manyranks.planning.shards import Units
from manyranks.recording.dispatch_mode import Recorder
from manyranks.recording.memory import MemoryBreakdown, MemoryLedger, Moment

ROOT_FIRST = 3  # position, and embedding's two: the root's parameters that a step uses first
FP32, HALF = torch.float32, torch.bfloat16
DTYPES = {"fp32": (FP32, FP32), "bf16": (HALF, FP32), "bf16-reduce": (HALF, HALF)}  # as in plan
FAKE = "fake"  # the backend of a world in which nothing is sent
WIDTH, ROWS = 64, 8  # of the models that are measured; rows of each rank
OPS = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_single": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
}


class CheckpointedBlock(nn.Module):
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

    "one unit" is `fully_shard` on the whole model and nothing inside it.

    `precision` is a key of DTYPES: `fully_shard` gets a MixedPrecisionPolicy, other kinds compute
    under autocast, and DDP sends its buckets in the second dtype. `replicas` groups of ranks hold
    the same (HSDP). A strategy with `needs` is measured at this number of ranks only, another one
    at any. DDP does not run in a fake world (torch 2.13): its model is plain there, no buckets.
    """

    name: str
    kind: str = "fully_shard"  # or "one process", "DDP", "ZeRO-1", "by hand", "one unit"
    policies: Mapping[str, Any] = field(default_factory=dict)
    offload: bool = False
    checkpointing: bool = False
    precision: str = "fp32"
    replicas: int = 1
    required_ranks: int | None = None

    def wrap(self, model: DigitsTransformer, device: torch.device) -> nn.Module:
        """The model, ready to be trained."""
        if self.checkpointing:
            model.blocks = nn.ModuleList(CheckpointedBlock(block) for block in model.blocks)
        if self.kind == "one process":
            return model
        if self.kind == "by hand":
            return FullyShardedByHand(model, model.blocks)
        if self.kind in ("DDP", "ZeRO-1"):
            if dist.get_backend() == FAKE:
                return model
            ids = [device] if device.type == "cuda" else None
            ddp = DistributedDataParallel(model, device_ids=ids, **self.policies)
            if self.precision == "bf16-reduce":
                ddp.register_comm_hook(None, bf16_compress)
            return ddp
        mesh, policies = self.mesh(device), dict(self.policies)
        if self.precision != "fp32":
            policies["mp_policy"] = MixedPrecisionPolicy(*DTYPES[self.precision])
        if self.offload:  # pinned memory needs an accelerator
            policies["offload_policy"] = CPUOffloadPolicy(pin_memory=device.type == "cuda")
        for block in model.blocks if self.kind != "one unit" else ():
            fully_shard(block, mesh=mesh, **policies)
        of_root = {k: v for k, v in policies.items() if k != "reshard_after_forward"}
        return fully_shard(model, mesh=mesh, **of_root)  # by default the root stays whole

    @property
    def autocast(self) -> bool:
        """Whether forward runs under bf16 autocast."""
        return self.kind != "fully_shard" and self.precision != "fp32"

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

            options = {"optimizer_class": torch.optim.AdamW, "lr": LEARNING_RATE, "fused": True}
            return ZeroRedundancyOptimizer(model.parameters(), **options)
        return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def predict_memory(self, units: Units, ranks: int, rank: int = 0) -> MemoryEstimate:
        """The bytes by formula, without activations."""
        if self.kind == "one process":
            return formulas.one_process(units)
        if self.kind == "DDP":
            return formulas.ddp(units)
        if self.kind == "ZeRO-1":
            return formulas.zero_1(units, ranks, rank)
        shards = ranks // self.replicas
        return formulas.fully_sharded(
            units, shards, rank % shards, policy=self.policy, offload=self.offload
        )

    def messages(self, units: Units, ranks: int) -> list[Message]:
        """The calls of a step by formula."""
        if self.kind == "one process":
            return []
        if self.kind == "fully_shard":
            return fsdp_messages(units, ranks // self.replicas, self.policy, self.replicas)
        calls = {"DDP": ddp_messages, "ZeRO-1": zero_1_messages}[self.kind]
        return calls(units, ranks, hook_dtype=DTYPES[self.precision][1], root_first=ROOT_FIRST)

    @property
    def policy(self) -> Policy:
        """`fully_shard`'s policies as the formulas take them."""
        reshard, dtypes = self.policies.get("reshard_after_forward", True), DTYPES[self.precision]
        if own := self.policies.get("mp_policy"):
            dtypes = own.param_dtype, own.reduce_dtype
        return Policy(reshard, param_dtype=dtypes[0], reduce_dtype=dtypes[1], root_first=ROOT_FIRST)


def bf16_compress(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """What bf16_compress_hook does, on gloo as well: send a bucket in bfloat16.

    DDP refuses a hook of that name without NCCL (torch 2.13).
    """
    buffer = bucket.buffer().to(HALF).div_(dist.get_world_size())
    future = dist.all_reduce(buffer, async_op=True).get_future()
    return future.then(lambda sum_future: bucket.buffer().copy_(sum_future.value()[0]))


STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy("one process", "one process"),
        Strategy("DDP", "DDP"),
        Strategy("ZeRO-1", "ZeRO-1"),
        Strategy("fully_shard"),
        Strategy("blocks stay gathered", policies={"reshard_after_forward": False}),
        Strategy("reshard to 2", policies={"reshard_after_forward": 2}, required_ranks=4),
        Strategy("bf16", precision="bf16"),
        Strategy("CPU offload", offload=True),
        Strategy("checkpointing", checkpointing=True),
        Strategy("HSDP, 2 x 2", replicas=2, required_ranks=4),
    )
}


def in_all_dtypes() -> list[Strategy]:
    """Each strategy that sends something of its own, in each of DTYPES."""
    names = ("DDP", "ZeRO-1", "fully_shard", "blocks stay gathered", "HSDP, 2 x 2")
    return [
        replace(STRATEGIES[name], name=f"{name}, {precision}", precision=precision)
        for name in names
        for precision in DTYPES
    ]


def units_of(model: DigitsTransformer) -> Units:
    """Shapes of the parameters that are gathered together: the root's, then each block's."""
    inside = {id(parameter) for parameter in model.blocks.parameters()}
    root = [p.shape for p in model.parameters() if id(p) not in inside]
    return [root, *([p.shape for p in block.parameters()] for block in model.blocks)]


@contextmanager
def group(backend: str, ranks: int, device: torch.device | None = None) -> Iterator[None]:
    """A default group in which this process is rank 0; none where `backend` is "".

    With FAKE there are no others; nccl needs the GPU of this rank.
    """
    if not backend:
        yield
        return
    store = dist.HashStore()  # within this process: no port, and no look-up of a host's name
    bound = device if backend == "nccl" else None  # connected now, and to this GPU
    if backend == FAKE:
        from torch.testing._internal.distributed import fake_pg  # registers the backend

        store = fake_pg.FakeStore()
    dist.init_process_group(backend, store=store, rank=0, world_size=ranks, device_id=bound)
    try:
        yield
    finally:  # nobody else is in this group who could wait
        gc.collect()
        dist.destroy_process_group()


# A step, measured


class StepMeasurement(NamedTuple):
    """One rank in one step: bytes by part, what was gathered when, its calls; and a loss."""

    held: MemoryBreakdown | None  # None, and no timeline, where only the calls were asked for
    timeline: list[Moment]
    wire: list[Message]
    loss: float  # of the second step


def measure_steps(
    selection: Sequence[Strategy],
    width: int,
    depth: int,
    dtype: torch.dtype = FP32,
    measure_memory: bool = True,
) -> dict[str, StepMeasurement]:
    """A worker: train some steps in each of these ways, and measure the last.

    Without `measure_memory` only what it sends, which is quicker.
    """
    device = setup()
    digits = DigitsDataset()
    mine = slice(dist.get_rank(), ROWS * dist.get_world_size(), dist.get_world_size())
    # A clone: of a view the ledger would count all the digits.
    images = digits.images[mine].clone().to(device, dtype)
    labels = digits.labels[mine].clone().to(device)
    measurements = {}
    for strategy in selection:
        torch.manual_seed(SEED)
        model = DigitsTransformer(width, depth).to(device, dtype)
        measurements[strategy.name] = measure_step(strategy, model, images, labels, measure_memory)
    cleanup()
    return measurements


def measure_step(
    strategy: Strategy,
    model: DigitsTransformer,
    images: Tensor,
    labels: Tensor,
    measure_memory: bool,
) -> StepMeasurement:
    """What this rank holds and sends in a step that is like all later ones."""
    wrapper = strategy.wrap(model, images.device)
    optimizer = strategy.optimizer(wrapper)
    losses = []

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(images.device.type, torch.bfloat16, enabled=strategy.autocast):
            loss = F.cross_entropy(wrapper(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    step()  # AdamW makes its state
    step()  # DDP makes its final buckets
    rows: list[dict] = []
    ledger = MemoryLedger(wrapper, optimizer) if measure_memory else None
    with Recorder(rows), ledger or nullcontext():
        step()
    timeline = ledger.timeline if ledger else []
    calls = [call_of(row) for row in rows]
    return StepMeasurement(ledger and ledger.held, timeline, calls, losses[1])


def call_of(row: dict) -> Message:
    """A row of the recorder, which calls a group "default" or "ranks 0,2"."""
    members = [
        int(rank) for rank in row["group"].removeprefix("ranks ").split(",") if rank.isdigit()
    ]
    ranks, stride = dist.get_world_size(), 1
    if members:
        ranks, stride = len(members), members[1] - members[0] if members[1:] else 1
    op = OPS.get(row["op"], row["op"])
    return Message(op, "", row["bytes"], row["received"], ranks, stride)
