"""Train with every block cut over some ranks, and the blocks shared out over others.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/model_parallel.py

With --tensor 2 --pipeline 2 at the end of that line, the blocks are two stages, and two ranks
compute each of them together. New since fully_sharded.py: `cut`, which leaves a rank its blocks,
and of their matrices its columns or rows. Ranks that the options leave over share each batch, as in
chapter 02. A batch that is not full is left out, because all micro-batches need the same shape.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer, Result, accuracy, batches
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.training_run import run

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 4
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SEED = 0
MICRO_BATCHES = 4  # of each rank's rows; they go through the stages one after the other
COLUMNS_THEN_ROWS = {  # of a block's matrices; its norms stay whole
    "query_key_value": ColwiseParallel(),
    "attention_output": RowwiseParallel(),
    "mlp.0": ColwiseParallel(),
    "mlp.2": RowwiseParallel(),
}


class Stage(nn.Module):
    """The blocks of one stage; the first stage also embeds images, the last one classifies."""

    def __init__(self, model: DigitsTransformer, index: int, stages: int) -> None:
        super().__init__()
        first, last = (len(model.blocks) * end // stages for end in (index, index + 1))
        # By their numbers in the whole model, so that the stages' state dicts fit together.
        self.blocks = nn.ModuleDict({str(n): model.blocks[n] for n in range(first, last)})
        if index == 0:
            self.embedding, self.position = model.embedding, model.position
        if index == stages - 1:
            self.norm, self.output = model.norm, model.output

    def forward(self, tokens: Tensor) -> Tensor:
        """Images or tokens to tokens or scores; one stage does all of DigitsTransformer's."""
        if hasattr(self, "embedding"):
            tokens = self.embedding(tokens.unflatten(1, (len(self.position), -1))) + self.position
        for block in self.blocks.values():
            tokens = block(tokens)
        return self.output(self.norm(tokens).mean(dim=1)) if hasattr(self, "output") else tokens


def make_mesh(device: torch.device, tensor: int, pipeline: int) -> DeviceMesh:
    """Ranks as data x pipeline x tensor: those that share a block have adjacent numbers."""
    data, rest = divmod(dist.get_world_size(), tensor * pipeline)
    if rest:
        words = f"tensor {tensor} x pipeline {pipeline} = {tensor * pipeline}"
        raise ValueError(f"{words} does not divide the {dist.get_world_size()} ranks")
    names = ("data", "pipeline", "tensor")
    return init_device_mesh(device.type, (data, pipeline, tensor), mesh_dim_names=names)


def cut(
    model: DigitsTransformer, mesh: DeviceMesh, device: torch.device
) -> tuple[Stage, Schedule1F1B]:
    """This rank's stage with its share of each matrix, and the schedule that runs it."""
    index, stages, tensor = mesh.get_local_rank("pipeline"), mesh.size(1), mesh["tensor"]
    if stages > len(model.blocks) or model.heads % tensor.size():
        words = f"{stages} stages of at least one block, {tensor.size()} shares of whole heads"
        raise ValueError(f"{words}: there are {len(model.blocks)} blocks of {model.heads} heads")
    stage = Stage(model, index, stages).to(device)
    for block in stage.blocks.values():
        parallelize_module(block, tensor, COLUMNS_THEN_ROWS)
    place = PipelineStage(stage, index, stages, device, group=mesh.get_group("pipeline"))
    return stage, Schedule1F1B(place, MICRO_BATCHES, F.cross_entropy)


def make_optimizer(stage: Stage) -> torch.optim.SGD:
    """One for this rank's shares; foreach, a GPU's default, cannot mix DTensors and tensors."""
    settings = {"lr": LEARNING_RATE, "momentum": MOMENTUM}
    return torch.optim.SGD(stage.parameters(), foreach=False, **settings)


def full_batches(
    dataset: DigitsDataset, batch_size: int, epoch: int, parts: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of `batch_size` rows, which `parts` ranks can split into micro-batches."""
    if batch_size % (parts * MICRO_BATCHES):
        words = f"{parts} x {MICRO_BATCHES} micro-batches of one size"
        raise ValueError(f"batch_size {batch_size} cannot be split into {words}")
    return (batch for batch in batches(dataset, batch_size, epoch) if len(batch[0]) == batch_size)


def forward_and_backward(
    schedule: Schedule1F1B, images: Tensor, labels: Tensor, mesh: DeviceMesh
) -> Tensor:
    """All micro-batches forward and backward; this rank's share of the whole batch's mean loss."""
    losses: list[Tensor] = []
    schedule.step(images, target=labels, losses=losses)  # each stage uses what it needs of these
    loss = torch.stack(losses).mean() if losses else torch.zeros(())  # of the last stage only
    return loss.detach() / (mesh.size(0) * mesh.size(2))  # as many ranks have that stage


def average_gradients(stage: Stage, group: dist.ProcessGroup) -> None:
    """Replace each gradient, or the rank's share of it, by its mean over the group."""
    for parameter in stage.parameters():
        grad = parameter.grad
        share = grad.to_local() if isinstance(grad, DTensor) else grad
        dist.all_reduce(share, dist.ReduceOp.AVG, group)


def whole_weights(stage: Stage, group: dist.ProcessGroup) -> dict[str, Tensor]:
    """The full tensors of all stages, on the CPU of every rank."""
    values = stage.state_dict()
    full = {n: (v.full_tensor() if isinstance(v, DTensor) else v).cpu() for n, v in values.items()}
    of_stages = [full] * group.size()
    dist.all_gather_object(of_stages, full, group)
    return {name: value for weights in of_stages for name, value in weights.items()}


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
    tensor: int = 1,
    pipeline: int = 1,
) -> Result:
    """Train on all ranks together; every rank returns the same."""
    device = setup()
    mesh = make_mesh(device, tensor, pipeline)
    mine = slice(mesh.get_local_rank("data"), None, mesh.size(0))
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsTransformer(width, depth)
    stage, schedule = cut(model, mesh, device)
    optimizer = make_optimizer(stage)
    losses = []
    for epoch in range(epochs):
        for images, labels in full_batches(digits, batch_size, epoch, mesh.size(0)):
            optimizer.zero_grad()
            my_images, my_labels = images[mine].to(device), labels[mine].to(device)
            loss = forward_and_backward(schedule, my_images, my_labels, mesh)
            average_gradients(stage, mesh.get_group("data"))
            optimizer.step()
            losses.append(loss)
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)
    weights = whole_weights(stage, mesh.get_group("pipeline"))
    cleanup()
    model = DigitsTransformer(width, depth)
    model.load_state_dict(weights)
    return Result([loss.item() for loss in losses], accuracy(model, digits), weights)


if __name__ == "__main__":
    run(train)
