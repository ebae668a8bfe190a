# wrong: reduces all gradients when backward is over
# told: What can you do with it before the next block's backward
import torch.distributed as dist


def fsdp_step(blocks, x, loss_grad, lr):
    last = blocks[-1]
    for block in blocks:
        block.gather()
        x = block.forward(x)
        if block is not last:
            block.free()
    grad, grads = loss_grad(x), []
    for block in reversed(blocks):
        if block is not last:
            block.gather()
        grad, weight_grad = block.backward(grad)
        block.free()
        grads.append(weight_grad)
    for block, weight_grad in zip(reversed(blocks), grads):
        block.piece -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
