# wrong: rank 0 alone comes to the broadcast
# told: hangs at
# told: rank 1
# told: has returned without it
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    if dist.get_rank() == 0:
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.detach(), src=0)
