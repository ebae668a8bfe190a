# wrong: gathers all blocks before the forward
# told: Every block is gathered before the first one is used
import torch.distributed as dist


def fsdp_step(blocks, x, loss_grad, lr):
    for block in blocks:
        block.gather()
    for block in blocks:
        x = block.forward(x)
    grad = loss_grad(x)
    for block in reversed(blocks):
        grad, weight_grad = block.backward(grad)
        block.free()
        block.piece -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
