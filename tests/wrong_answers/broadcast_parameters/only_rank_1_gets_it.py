# wrong: rank 0 sends to rank 1 alone
# told: Nothing came to this rank
# right at: 1, 2
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        if dist.get_rank() == 0 and dist.get_world_size() > 1:
            dist.send(tensor.detach(), dst=1)
        if dist.get_rank() == 1:
            dist.recv(tensor.detach(), src=0)
