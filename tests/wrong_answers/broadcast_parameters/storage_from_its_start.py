# wrong: takes the memory from the storage's begin
# told: does not begin where its storage begins
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach().as_strided((tensor.numel(),), (1,), 0), src=0)
