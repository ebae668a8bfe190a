# wrong: knows no shuffle
# told: It is not shuffled, and shuffle is True


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    each = n // world_size if drop_last else -(-n // world_size)
    return [place % n for place in range(rank, each * world_size, world_size)]
