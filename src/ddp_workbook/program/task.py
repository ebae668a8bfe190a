"""What is trained, and how: put your own in the place of all of this."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset


class Block(nn.Sequential):
    """A layer that is repeated: with fully_shard, a unit that is gathered and freed as one."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())


def make_model(width: int = 64) -> nn.Module:
    """The model, on the CPU. All ranks have the same random seed here, so the same weights."""
    return nn.Sequential(nn.Linear(64, width), Block(width), Block(width), nn.Linear(width, 10))


def make_data() -> TensorDataset:
    """The whole data set, the same on all ranks: a sampler chooses what each rank reads of it."""
    inputs = torch.randn(4096, 64, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs[:, :10].argmax(dim=1))


def loss_of(model: nn.Module, batch: list[Tensor], device: torch.device) -> Tensor:
    """The mean loss over the samples of a batch, which comes from the loader, on the CPU."""
    inputs, labels = (part.to(device, non_blocking=True) for part in batch)
    return F.cross_entropy(model(inputs), labels)


def lr_factor(step: int, steps: int, warm_up: int) -> float:
    """The learning rate of a step, as a share of --lr: warm-up, times a cosine down to 0."""
    return min(1, (step + 1) / max(1, warm_up)) * (1 + math.cos(math.pi * step / steps)) / 2
