# wrong: one float32 vector for all; float64 and the counter lose digits on the way
# told: In which dtype has it travelled?
import torch
import torch.distributed as dist


def broadcast_parameters(model):
    tensors = [*model.parameters(), *model.buffers()]
    flat = torch.cat([tensor.detach().float().flatten() for tensor in tensors])
    dist.broadcast(flat, src=0)
    with torch.no_grad():
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.reshape(tensor.shape))
