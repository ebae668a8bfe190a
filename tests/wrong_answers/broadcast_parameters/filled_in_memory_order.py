# wrong: reads in the order of the indices, and fills in the order of the memory
# told: rank 0's numbers in another order
# right at: 1
import torch
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        flat = tensor.detach().flatten()
        dist.broadcast(flat, src=0)
        if dist.get_rank() > 0:
            with torch.no_grad():
                memory = torch.as_strided(tensor, (tensor.numel(),), (1,))
                memory.copy_(flat)
