# wrong: fills a copy, where a weight is not contiguous
# told: is channels_last
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach().contiguous(), src=0)
