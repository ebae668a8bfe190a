# wrong: waits for the last broadcast alone
# told: 9 of 10 operations
# told: still at work when your function returned
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        work = dist.broadcast(tensor.detach(), src=0, async_op=True)
    work.wait()
