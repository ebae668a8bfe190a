# wrong: changes the whole weight, which is freed
# told: Which line writes into block.piece


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
        block.reduce_scatter(weight_grad)
        block.weight.sub_(lr * weight_grad)
        block.free()
