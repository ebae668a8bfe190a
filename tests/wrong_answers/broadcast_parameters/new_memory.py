# wrong: the Parameters stay, but not what they lie in
# told: lies in other memory than before
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        received = tensor.detach().clone()
        dist.broadcast(received, src=0)
        tensor.data = received
