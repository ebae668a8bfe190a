# wrong: the functions, where their names are asked for
# told: What does the annotation say about the type
import torch.distributed as dist


def name_the_collective():
    return {"A": dist.reduce, "B": dist.all_gather, "G": (dist.all_reduce, dist.ReduceOp.MAX)}
