# %% counts the files from the end, as a list allows it
# told: Which number is out of that range
edit("read(file)", "read(file - len(sizes))")


# %% rank 0 reads everything and sends it to all
# told: What is left to send
def load_resharded(full, sizes, read):
    whole = torch.empty(full.shape, dtype=full.dtype)
    if dist.get_rank() == 0:
        whole = torch.cat([read(file) for file in range(len(sizes))])
    dist.broadcast(whole, src=0)
    rows = -(-len(full) // dist.get_world_size())
    return whole[dist.get_rank() * rows :][:rows].clone()


# %% every rank reads everything, and takes its rows of it
# told: Which of these have a row
body("""
    whole = torch.cat([read(file) for file in range(len(sizes))])
    rows = -(-len(full) // dist.get_world_size())
    return whole[dist.get_rank() * rows :][:rows].clone()
""")

# %% keeps a slice of each file, and joins them in the end
# told: A slice of a file keeps the whole file
edit(
    "mine = torch.empty(end - first, *",
    "parts = [torch.empty(0, *",
    "dtype=full.dtype)",
    "dtype=full.dtype)]",
    "mine[low - first : high - first] = read(file)[low - begin : high - begin]",
    "parts.append(read(file)[low - begin : high - begin])",
    "return mine",
    "return torch.cat(parts)",
)

# %% reads a file again for each of its rows
# told: A file was read more than once
edit(
    "mine[low - first : high - first] = read(file)[low - begin : high - begin]",
    """for row in range(low, high):
                mine[row - first] = read(file)[row - begin]""",
)

# %% the first ranks get the rows that are left over, one each
# told: How does torch.chunk deal out
# right at: 1, 2
edit(
    "-(-len(full) // dist.get_world_size())  # rounded up",
    "len(full) // dist.get_world_size()\n    left = len(full) % dist.get_world_size()",
    "min(dist.get_rank() * rows, len(full))",
    "dist.get_rank() * rows + min(dist.get_rank(), left)",
    "min(first + rows, len(full))",
    "first + rows + (dist.get_rank() < left)",
)

# %% the last row comes first
# told: which file has it
edit("return mine", "return mine.flip(0)")

# %% pads the last ranks, so that all have as many rows
# told: There are more rows than this rank owns
# right at: 1, 2
edit(
    "min(first + rows, len(full))",
    "first + rows",
    "torch.empty(",
    "torch.zeros(",
    "min(end, begin + size)",
    "min(end, begin + size, len(full))",
)

# %% lets a rank begin after the end
# told: The last ranks may have no rows at all
# right at: 1, 2, 3
edit("min(dist.get_rank() * rows, len(full))", "dist.get_rank() * rows")

# %% all ranks load rank 0's rows
# told: These are another rank's rows
# right at: 1
edit("min(dist.get_rank() * rows, len(full))", "0")

# %% takes the tensor without memory for the result
# told: Which tensor gets the rows
edit("torch.empty(end - first, *full.shape[1:], dtype=full.dtype)", "full[first:end]")

# %% returns an empty tensor of no shape where a rank owns no rows
# told: This rank owns no rows
edit(
    "    mine = torch.empty",
    "    if first == end:\n        return torch.empty(0)\n    mine = torch.empty",
)
