# wrong: updates all blocks but the last one
# told: Which blocks does your update reach
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
        piece_grad = block.reduce_scatter(weight_grad)
        if block is not last or len(blocks) == 1:
            block.piece -= lr * piece_grad / dist.get_world_size()
