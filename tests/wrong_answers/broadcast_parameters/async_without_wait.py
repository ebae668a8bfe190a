# wrong: starts the broadcasts and does not wait for them
# told: still changed after your function had returned
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src=0, async_op=True)
