# wrong: sends floating-point numbers alone
# told: Only the counter is wrong
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            dist.broadcast(tensor.detach(), src=0)
