# wrong: gathers each block once, and frees nothing
# told: Nothing was freed
import torch.distributed as dist


def fsdp_step(blocks, x, loss_grad, lr):
    for block in blocks:
        block.gather()
        x = block.forward(x)
    grad = loss_grad(x)
    for block in reversed(blocks):
        grad, weight_grad = block.backward(grad)
        block.piece -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
