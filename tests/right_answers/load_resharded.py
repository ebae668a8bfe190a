# %% the owner of each row, and one file after the other, the last one first
def load_resharded(full, sizes, read):
    files = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    parts = files.split(-(-len(full) // dist.get_world_size()))
    own = parts[dist.get_rank()] if dist.get_rank() < len(parts) else files[:0]
    first = dist.get_rank() * len(parts[0])
    mine = torch.zeros(len(own), *full.shape[1:]).to(full.dtype)
    for file in sorted({*own.tolist()}, reverse=True):
        rows = (own == file).nonzero().flatten()
        mine[rows] = read(file)[rows + first - sum(sizes[:file])]
    return mine


# %% views of the result, which are filled one by one
import math


def load_resharded(full, sizes, read):
    start, each = 0, max(1, math.ceil(full.shape[0] / dist.get_world_size()))
    mine = [*range(full.shape[0])[each * dist.get_rank() :][:each]]
    result = full.new_empty(len(mine), *full.shape[1:], device="cpu")
    for file, size in enumerate(sizes):
        wanted = [row for row in mine if start <= row < start + size]
        if wanted:
            shard = read(file)
            target = result.narrow(0, wanted[0] - mine[0], len(wanted))
            target.copy_(shard.narrow(0, wanted[0] - start, len(wanted)))
            del shard
        start += size
    return result
