# wrong: gathers the next block while this one computes
# told: FSDP does that to hide the communication
import torch.distributed as dist


def fsdp_step(blocks, x, loss_grad, lr):
    last = len(blocks) - 1
    blocks[0].gather()
    for number, block in enumerate(blocks):
        if number < last:
            blocks[number + 1].gather()
        x = block.forward(x)
        if number < last:
            block.free()
    grad = loss_grad(x)
    for block in reversed(blocks):
        if block is not blocks[-1]:
            block.gather()
        grad, weight_grad = block.backward(grad)
        block.free()
        block.piece -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
