# wrong: takes samples 0 to done - 1 for those that are done
# told: samples with numbers below done
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    left = [sample for sample in order if sample >= done]
    return left[rank::world_size]
