# wrong: does not gather for backward
# told: What does backward need again
import torch.distributed as dist


def fsdp_step(blocks, x, loss_grad, lr):
    for block in blocks:
        block.gather()
        x = block.forward(x)
        block.free()
    grad = loss_grad(x)
    for block in reversed(blocks):
        grad, weight_grad = block.backward(grad)
        block.free()
        block.piece -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
