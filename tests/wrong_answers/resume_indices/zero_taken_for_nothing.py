# wrong: fills up with 0 and takes all zeros out again, sample 0 with them
# told: Sample 0 is lost
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    left = torch.randperm(n, generator=generator)[done:]
    table = torch.zeros(-(-len(left) // world_size), world_size, dtype=torch.int64)
    table.view(-1)[: len(left)] = left
    return [sample for sample in table[:, rank].tolist() if sample]
