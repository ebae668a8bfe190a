# %% leaves it to chunk, which makes fewer shards than ranks
# told: 5 elements make three chunks
# right at: 1
edit(
    "[flat, padding])[start : start + length]",
    "[flat.chunk(ranks)[dist.get_rank()], padding])[:length]",
)

# %% leaves the shard in autograd's graph, which holds the parameter
# told: what takes it out of the graph
edit(".detach()", "")

# %% makes a row of what has several dimensions, and forgets what has none
# told: A tensor may have any number of dimensions
edit(
    ".flatten()",
    "\n    flat = flat.flatten() if flat.dim() > 1 else flat",
    "-len(flat)",
    "-flat.numel()",
)

# %% reshapes without zeros
# told: do not divide into that many equal shards
# right at: 1
body("return tensor.detach().flatten().reshape(dist.get_world_size(), -1)[dist.get_rank()].clone()")

# %% has rank 0 scatter the shards
# told: Every rank has the full tensor already
edit("    start =", "    dist.barrier()\n    start =")

# %% cuts a view, which keeps the whole row in memory
# told: A slice is a view
# right at: 1
edit(".clone()", "")

# %% takes the caller's parameter out of training
# told: tensor.requires_grad on rank
edit("flat = tensor", "tensor.requires_grad_(False)\n    flat = tensor")

# %% gives a parameter other memory, which makes it contiguous
# told: the strides of tensor
edit("flat = tensor", "tensor.data = tensor.data.contiguous()\n    flat = tensor")
