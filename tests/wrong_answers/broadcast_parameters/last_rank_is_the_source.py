# wrong: rank 0 gets the last rank's model
# told: Who is the source, on every rank?
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src=dist.get_world_size() - 1)
