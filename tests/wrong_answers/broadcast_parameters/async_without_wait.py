# wrong: starts the broadcasts and does not wait for them
# told: 10 of 10 operations
# told: still at work when your function returned
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src=0, async_op=True)
