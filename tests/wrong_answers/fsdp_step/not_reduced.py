# wrong: takes its own gradient's piece, and reduces nothing
# told: The piece moved by this rank's own gradient. Where
# right at: 1
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
        length = len(block.piece)
        row = torch.zeros(dist.get_world_size() * length, dtype=x.dtype)
        row[: weight_grad.numel()] = weight_grad.flatten()
        block.piece -= lr * row[dist.get_rank() * length :][:length]
