# %% every rank broadcasts its piece
# told: as many collectives as there are ranks
def unshard(piece, shape):
    pieces = [piece.clone() for _ in range(dist.get_world_size())]
    for rank, one in enumerate(pieces):
        dist.broadcast(one, src=rank)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)


# %% gathers into the same memory in each call
# told: which a later call has changed
# right at: 1
BUFFERS = {}


def unshard(piece, shape):
    ranks = dist.get_world_size()
    key = (piece.dtype, len(piece) * ranks)
    row = BUFFERS.setdefault(key, piece.new_empty(len(piece) * ranks))
    dist.all_gather(list(row.view(ranks, len(piece))), piece)
    return row[: shape.numel()].view(shape)


# %% takes tensors of the default dtype
# told: Which dtype do the tensors that the collective fills have
edit("torch.empty_like(piece)", "torch.empty(len(piece))")


# %% rounds the length of the pieces down
# told: Which shape must a tensor have to take the piece
# right at: 1
edit("torch.empty_like(piece)", "piece.new_empty(shape.numel() // dist.get_world_size())")


# %% starts the all-gather and does not wait for it
# told: still at work when your function returned
edit("(pieces, piece)", "(pieces, piece, async_op=True)")


# %% goes through float64
# told: The numbers are right, the dtype is not
edit(
    "empty_like(piece)", "empty_like(piece.double())", "(pieces, piece)", "(pieces, piece.double())"
)


# %% gives all_gather an empty list to fill
# told: How many tensors does the list to be filled hold
edit("[torch.empty_like(piece) for _ in range(dist.get_world_size())]", "[]")


# %% joins the pieces that have something in them, of which there may be none
# told: A tensor without elements has pieces too
edit("torch.cat(pieces)", "torch.cat([one for one in pieces if len(one)])")


# %% gathers the lengths first, which are all equal
# told: The pieces are equally long, and every rank knows the shape
def unshard(piece, shape):
    lengths = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.tensor([len(piece)]))
    pieces = [piece.new_empty(length.item()) for length in lengths]
    dist.all_gather(pieces, piece)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)


# %% returns what the collective fills
# told: This is a list; a tensor is asked for
edit("torch.cat(pieces)[: shape.numel()].reshape(shape)", "pieces")


# %% pieces as pickled objects
# told: An object collective is two
def unshard(piece, shape):
    pieces = [None] * dist.get_world_size()
    dist.all_gather_object(pieces, piece)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)


# %% gathers into one tensor several times
# told: one tensor several times
# right at: 1
edit(
    "[torch.empty_like(piece) for _ in range(dist.get_world_size())]",
    "[torch.empty_like(piece)] * dist.get_world_size()",
)


# %% gathers on rank 0
# told: After gather, only one rank has the pieces
def unshard(piece, shape):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    pieces = [torch.empty_like(piece) for _ in range(ranks)] if rank == 0 else None
    dist.gather(piece, pieces, dst=0)
    if rank == 0:
        return torch.cat(pieces)[: shape.numel()].reshape(shape)
    return piece.new_zeros(shape)


# %% has the pieces in a DTensor, and returns it
# told: Which method of a DTensor returns the whole tensor
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard


def unshard(piece, shape):
    return DTensor.from_local(piece, init_device_mesh("cpu", (dist.get_world_size(),)), [Shard(0)])


# %% returns its own piece in the shape, and zeros
# told: Which collective brings the others'
# right at: 1
def unshard(piece, shape):
    whole = piece.new_zeros(len(piece) * dist.get_world_size())
    start = dist.get_rank() * len(piece)
    whole[start : start + len(piece)] = piece
    return whole[: shape.numel()].reshape(shape)


# %% reshapes the row with its padding
# told: Does what you reshape have as many elements
# right at: 1
edit("[: shape.numel()]", "")


# %% adds up rows that are zero but for the own piece
# told: A sum over zeros puts every number into its place
def unshard(piece, shape):
    whole = piece.new_zeros(len(piece) * dist.get_world_size())
    start = dist.get_rank() * len(piece)
    whole[start : start + len(piece)] = piece
    dist.all_reduce(whole)
    return whole[: shape.numel()].reshape(shape)


# %% clears the piece, once it is gathered, to save memory
# told: Which line changes it
edit("return", "piece.zero_()\n    return")


# %% a rank whose piece is zeros does not come to the all-gather
# told: returned without it
# right at: 1
def unshard(piece, shape):
    if not piece.any():
        return piece.new_zeros(shape)
    pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
