# wrong: goes on as if the order had not been shuffled
# told: The order is not shuffled


def resume_indices(n, epoch, seed, done, rank, world_size):
    return list(range(done + rank, n, world_size))
