# wrong: a seed that depends on the stop gives another order, of which other samples are done
# told: not the order before the stop
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch + done)
    order = torch.randperm(n, generator=generator).tolist()
    return order[done + rank :: world_size]
