# wrong: the others multiply by 0 and all add up, but nan and inf times 0 are nan
# told: nan times 0 is nan
# right at: 1
import torch
import torch.distributed as dist


@torch.no_grad()
def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.mul_(dist.get_rank() == 0)
        dist.all_reduce(tensor)
