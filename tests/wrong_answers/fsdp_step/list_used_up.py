# wrong: takes the blocks out of the list
# told: Which line changes it? For example, pop and reverse
import torch.distributed as dist


def fsdp_step(blocks, x, loss_grad, lr):
    last = blocks[-1]
    for block in blocks:
        block.gather()
        x = block.forward(x)
        if block is not last:
            block.free()
    grad = loss_grad(x)
    while blocks:
        block = blocks.pop()
        if block is not last:
            block.gather()
        grad, weight_grad = block.backward(grad)
        block.free()
        block.piece -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
