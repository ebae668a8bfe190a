# %% fills the same memory in each call
# told: which a later call has changed
# right at: 1
BUFFERS = {}


def shard_and_pad(tensor):
    row = tensor.detach().flatten()
    length = -(-len(row) // dist.get_world_size())
    key = (tensor.dtype, length)
    piece = BUFFERS.setdefault(key, row.new_zeros(length)).zero_()
    own = row[dist.get_rank() * length :][:length]
    piece[: len(own)] = own
    return piece


# %% leaves it to chunk, which makes fewer pieces than ranks
# told: 5 elements make three chunks
# right at: 1
def shard_and_pad(tensor):
    row = tensor.detach().flatten()
    length = -(-len(row) // dist.get_world_size())
    own = row.chunk(dist.get_world_size())[dist.get_rank()]
    return torch.cat([own, own.new_zeros(length - len(own))])


# %% pads nothing, and gives nothing to a rank for which chunk has no piece
# told: Where are the zeros that make all pieces equally long
# right at: 1
def shard_and_pad(tensor):
    pieces = tensor.detach().flatten().chunk(dist.get_world_size())
    rank = dist.get_rank()
    return pieces[rank].clone() if rank < len(pieces) else pieces[0][:0].clone()


# %% leaves the piece in autograd's graph, which holds the parameter
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
# told: do not divide into that many equal pieces
# right at: 1
def shard_and_pad(tensor):
    rows = tensor.detach().flatten().reshape(dist.get_world_size(), -1)
    return rows[dist.get_rank()].clone()


# %% makes the tensor itself the piece, and returns nothing
# told: Does the function return its result
edit("return", "tensor =")


# %% has rank 0 scatter the pieces
# told: Every rank has the whole tensor already
def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = tensor.detach().flatten()
    row = torch.cat([row, row.new_zeros(-len(row) % ranks)])
    pieces = list(row.view(ranks, len(row) // ranks)) if dist.get_rank() == 0 else None
    piece = row.new_empty(len(row) // ranks)
    dist.scatter(piece, pieces, src=0)
    return piece


# %% cuts a view, which keeps the whole row in memory
# told: A slice is a view
# right at: 1
edit(".clone()", "")


# %% makes a row with view
# told: view needs elements that are already contiguous
edit("flatten()", "view(-1)")


# %% takes the caller's parameter out of training
# told: tensor.requires_grad on rank
edit("flat = tensor", "tensor.requires_grad_(False)\n    flat = tensor")


# %% gives a parameter other memory, which makes it contiguous
# told: the strides of tensor
edit("flat = tensor", "tensor.data = tensor.data.contiguous()\n    flat = tensor")


# %% makes a row of the default dtype
# told: Which line decides in which dtype the zeros
edit("flat.new_zeros", "torch.zeros")
