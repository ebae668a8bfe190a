# wrong: goes round with one half of the tensor, and then with the other
# told: Which of these numbers can you send together
# right at: 1
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    box = tensor.contiguous()
    for half in box.tensor_split(2):
        pieces = half.tensor_split(ranks)
        for number in range(2 * (ranks - 1)):
            leaving, staying = pieces[(rank - number) % ranks], pieces[(rank - number - 1) % ranks]
            arriving = torch.empty_like(staying)
            sending = dist.isend(leaving, after)
            dist.recv(arriving, before)
            sending.wait()
            staying.copy_(staying + arriving if number < ranks - 1 else arriving)
    tensor.copy_(box)
