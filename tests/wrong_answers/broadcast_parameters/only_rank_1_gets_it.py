# wrong: rank 0 sends to rank 1 alone
# told: Nothing came to this rank
# right at: 1, 2
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        message = tensor.detach().contiguous()
        if dist.get_rank() == 0 and dist.get_world_size() > 1:
            dist.send(message, dst=1)
        if dist.get_rank() == 1:
            dist.recv(message, src=0)
            tensor.detach().copy_(message)
