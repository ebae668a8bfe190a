# wrong: goes backward twice through each block
# told: Each backward of a block needs a forward
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
        _, weight_grad = block.backward(grad)
        grad, _ = block.backward(grad)
        block.free()
        block.piece -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
