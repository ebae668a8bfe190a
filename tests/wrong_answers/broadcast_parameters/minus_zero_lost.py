# wrong: the others take zeros and all add up, but -0.0 and 0.0 are 0.0
# told: other bits than -0.0
# right at: 1
import torch
import torch.distributed as dist


@torch.no_grad()
def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        if dist.get_rank() > 0:
            tensor.zero_()
        dist.all_reduce(tensor)
