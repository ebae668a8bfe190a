# wrong: a float64 gradient goes through a float32 vector
# told: right up to the rounding of float32
import torch
import torch.distributed as dist


def average_gradients(model):
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([one.reshape(-1).float() for one in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for one, piece in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        one.copy_(piece.view(one.shape))
