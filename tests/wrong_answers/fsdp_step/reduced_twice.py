# wrong: reduces each gradient twice, once to look at it
# told: A gradient was reduced more than once
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
        largest = block.reduce_scatter(weight_grad).abs().max()
        assert largest.isfinite()
        block.piece -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
