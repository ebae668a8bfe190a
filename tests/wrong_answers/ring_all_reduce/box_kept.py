# wrong: keeps the tensor that it works on by its length, whatever the dtype of the next one
# told: What does your function keep from one call to the next
import torch
import torch.distributed as dist

BOXES = {}


def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    box = BOXES.setdefault(len(tensor), torch.empty_like(tensor))
    box.copy_(tensor)
    pieces = box.tensor_split(ranks)
    for number in range(2 * (ranks - 1)):
        leaving, staying = pieces[(rank - number) % ranks], pieces[(rank - number - 1) % ranks]
        arriving = torch.empty_like(staying)
        sending = dist.isend(leaving, after)
        dist.recv(arriving, before)
        sending.wait()
        staying.copy_(staying + arriving if number < ranks - 1 else arriving)
    tensor.copy_(box)
