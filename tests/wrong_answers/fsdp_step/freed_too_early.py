# wrong: frees before forward
# told: Which call makes its weight whole, and which one takes it away
import torch.distributed as dist


def fsdp_step(blocks, x, loss_grad, lr):
    for block in blocks:
        block.gather()
        block.free()
        x = block.forward(x)
    grad = loss_grad(x)
    for block in reversed(blocks):
        block.gather()
        grad, weight_grad = block.backward(grad)
        block.free()
        block.piece -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
