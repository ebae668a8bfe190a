# wrong: does not divide
# told: The loss is a mean: by what must the sum be divided
# right at: 1


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
        block.piece -= lr * block.reduce_scatter(weight_grad)
