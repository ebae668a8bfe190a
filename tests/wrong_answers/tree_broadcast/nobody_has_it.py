# wrong: begins with an empty list of those who have the numbers, without src
# told: No rank has sent anything
# right at: 1
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    box = tensor.contiguous()
    having = []
    for _ in range((ranks - 1).bit_length()):
        lacking = [(src + place) % ranks for place in range(ranks)]
        lacking = [one for one in lacking if one not in having]
        pairs = list(zip(having, lacking, strict=False))
        for sender, receiver in pairs:
            if rank == sender:
                dist.send(box, receiver)
            elif rank == receiver:
                dist.recv(box, sender)
            having.append(receiver)
    tensor.copy_(box)
