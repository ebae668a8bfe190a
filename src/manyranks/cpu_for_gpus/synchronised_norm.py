"""SyncBatchNorm on the CPU, which PyTorch has for GPUs only."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel

from manyranks.cpu_for_gpus.patching import replace
from manyranks.cpu_for_gpus.requests import REQUESTS


def install_synchronised_norm() -> None:
    """Let DDP take such layers, and let them compute."""
    replace(SyncBatchNorm, "forward", _forward)
    name = "_passing_sync_batchnorm_handle"  # refuses layers on the CPU
    setattr(DistributedDataParallel, name, lambda wrapper, module: None)


def _forward(forward: Callable, layer: SyncBatchNorm, x: torch.Tensor) -> torch.Tensor:
    """Normalise by mean and variance of the rows of all ranks.

    `x` has shape (rows, channels, ...). The ranks' sums are added up in one all-reduce, in double
    precision because variances are differences of them, and so are their gradients. The running
    variance is the unbiased one, as BatchNorm's.
    """
    uses_batch = layer.training or layer.running_mean is None
    group = layer.process_group
    if not (uses_batch and dist.is_initialized() and dist.get_world_size(group) > 1):
        return _as_batch_norm(layer, x, uses_batch)
    REQUESTS.note()
    layer._check_input_dim(x)
    dims = [dim for dim in range(x.dim()) if dim != 1]
    wide = x if x.dtype == torch.float64 else x.float()
    rows = torch.full((1,), x.numel() / x.size(1), dtype=torch.float64)
    own_mean, own_variance = wide.mean(dims).double(), wide.var(dims, correction=0).double()
    sums = torch.cat([rows, rows * own_mean, rows * (own_variance + own_mean.square())])
    sizes = [1, x.size(1), x.size(1)]
    count, total, squares = SumOverRanks.apply(sums, group).split(sizes)
    mean = total / count
    variance = (squares / count - mean.square()).clamp(min=0)
    _note_statistics(layer, mean, variance * count / (count - 1).clamp(min=1))
    shape = [1, -1] + [1] * (x.dim() - 2)
    scale = torch.rsqrt(variance + layer.eps).to(wide.dtype)
    y = (wide - mean.to(wide.dtype).view(shape)) * scale.view(shape)
    if layer.affine:
        y = y * layer.weight.view(shape) + layer.bias.view(shape)
    return y.to(x.dtype)


class SumOverRanks(torch.autograd.Function):
    """The sum over the ranks of a group; its gradient is the sum of the ranks' gradients."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        """All-reduce a copy."""
        context.group, total = group, x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(context: Any, *gradients: Any) -> tuple[torch.Tensor, None]:
        """All-reduce the gradient."""
        total = gradients[0].clone()
        dist.all_reduce(total, group=context.group)
        return total, None


def _as_batch_norm(layer: SyncBatchNorm, x: torch.Tensor, uses_batch: bool) -> torch.Tensor:
    """One rank, or an evaluation: BatchNorm."""
    factor = layer.momentum or 0.0
    if layer.training and layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
        factor = factor if layer.momentum is not None else 1.0 / float(layer.num_batches_tracked)
    keeps = not layer.training or layer.track_running_stats
    mean, variance = (layer.running_mean, layer.running_var) if keeps else (None, None)
    return torch.nn.functional.batch_norm(
        x, mean, variance, layer.weight, layer.bias, uses_batch, factor, layer.eps
    )


@torch.no_grad()
def _note_statistics(layer: SyncBatchNorm, mean: torch.Tensor, variance: torch.Tensor) -> None:
    """Move the running statistics towards those of this batch."""
    if not layer.training or layer.running_mean is None:
        return
    running: Any = layer
    running.num_batches_tracked.add_(1)
    factor = layer.momentum
    if factor is None:
        factor = 1.0 / float(running.num_batches_tracked)
    running.running_mean.lerp_(mean.to(running.running_mean.dtype), factor)
    running.running_var.lerp_(variance.to(running.running_var.dtype), factor)
