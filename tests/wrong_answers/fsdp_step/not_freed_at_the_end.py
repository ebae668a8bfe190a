# wrong: leaves the block that came last in backward whole
# told: What does a rank hold between two steps
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
        if block is not blocks[0]:
            block.free()
        block.piece -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
