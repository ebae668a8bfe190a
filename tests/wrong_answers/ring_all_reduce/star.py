# wrong: all pieces go to rank 0, which adds them up and sends them back
# told: Everything passes through rank 0
# right at: 1, 2
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for piece in box.tensor_split(ranks):
        if rank == 0:
            for other in range(1, ranks):
                arriving = torch.empty_like(piece)
                dist.recv(arriving, other)
                piece += arriving
            for other in range(1, ranks):
                dist.send(piece, other)
        else:
            dist.send(piece, 0)
            dist.recv(piece, 0)
    tensor.copy_(box)
