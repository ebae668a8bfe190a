# wrong: takes the whole gradient off the piece
# told: Which gradient has the same length


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
        block.reduce_scatter(weight_grad)
        block.piece -= lr * weight_grad
