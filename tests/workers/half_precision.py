"""What the tests of mixed precision run: a model that always overflows, and a sharded one."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup


class NeverFinite(nn.Sequential):
    """Every gradient is nan."""

    def forward(self, images: Tensor) -> Tensor:
        """Scores times nan."""
        return super().forward(images) * float("nan")


def never_finite() -> nn.Sequential:
    """In the place of `deep_sigmoids`."""
    return NeverFinite(nn.Linear(64, 10))


def sharded_step_with_inf_on_rank_1() -> tuple[int, float]:
    """How many steps a rank has made, and its scale, if only rank 1's shard has an inf."""
    device = setup()
    torch.manual_seed(0)
    model = fully_shard(nn.Linear(4, 4, bias=False).to(device))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler, steps = torch.amp.GradScaler(device.type), []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    scaler.scale(model(torch.ones(2, 4, device=device)).sum()).backward()
    if dist.get_rank() == 1:
        model.weight.grad.to_local()[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    cleanup()
    return len(steps), scaler.get_scale()
