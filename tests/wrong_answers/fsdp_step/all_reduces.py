# wrong: all-reduces the gradients and cuts its piece out
# told: An all-reduce sends twice the bytes
import torch
import torch.distributed as dist


def fsdp_step(blocks, x, loss_grad, lr):
    last = blocks[-1]
    for block in blocks:
        block.gather()
        x = block.forward(x)
        if block is not last:
            block.free()
    grad = loss_grad(x)
    for block in reversed(blocks):
        if block is not last:
            block.gather()
        grad, weight_grad = block.backward(grad)
        block.free()
        dist.all_reduce(weight_grad)
        ranks, length = dist.get_world_size(), len(block.piece)
        row = torch.zeros(ranks * length, dtype=x.dtype)
        row[: weight_grad.numel()] = weight_grad.flatten()
        block.piece -= lr * row[dist.get_rank() * length :][:length] / ranks
