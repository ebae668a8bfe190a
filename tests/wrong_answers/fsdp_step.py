# %% all-reduces the gradients and keeps its shard of the sum
# told: An all-reduce of a gradient as large as a weight
edit(
    "        block.shard -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()",
    """
        dist.all_reduce(weight_grad)
        ranks, length = dist.get_world_size(), len(block.shard)
        row = torch.zeros(ranks * length, dtype=x.dtype)
        row[: weight_grad.numel()] = weight_grad.flatten()
        block.shard -= lr * row[dist.get_rank() * length :][:length] / ranks
    """,
)

# %% goes backward twice through each block
# told: Each backward of a block needs a forward
edit(
    "grad, weight_grad = block.backward(grad)",
    "_, weight_grad = block.backward(grad)\n        grad, _ = block.backward(grad)",
)

# %% runs each block forward twice
# told: Each block runs forward once and backward once
edit("x = block.forward(x)", "block.forward(x)\n        x = block.forward(x)")

# %% frees the last block and gathers it again at once
# told: freed and then gathered again, with nothing in between
edit("if block is not last:  # its", "if True:  # its", "if block is not last", "if True")

# %% gathers each block before its forward, and once more
# told: how often did it get it
edit("block.gather()\n        x", "block.gather()\n        block.gather()\n        x")

# %% frees before forward
# told: Which call gathers its weight, and which one takes it away
edit("        x = block", "        block.free()\n        x = block")

# %% keeps all weights until their backward
# told: When is a block done with its weight
edit(
    "        if block is not last:  # its backward is next\n            block.free()\n",
    "",
    "        if block is not last:\n            block.gather()\n",
    "",
)

# %% takes what gather returns for the weight
# told: Which attribute is the full weight
edit(
    "block.gather()\n        x = block.forward(x)",
    "weight = block.gather()\n        x = block.forward(x @ weight)",
)

# %% takes the two gradients for each other
# told: Which one is as large as the weight
edit("grad, weight_grad =", "weight_grad, grad =")

# %% takes the blocks out of the list
# told: Which line changes it? For example, pop and reverse
edit("for block in reversed(blocks):", "while blocks:\n        block = blocks.pop()")

# %% leaves the block that came last in backward gathered
# told: What does a rank hold between two steps
edit(
    "        block.free()\n        block.shard",
    "        if block is not blocks[0]:\n            block.free()\n        block.shard",
)

# %% does not gather for backward
# told: What does backward need again
edit("        if block is not last:\n            block.gather()\n", "")

# %% calls a reduce-scatter of its own
# told: Which of their calls does the work of this one
edit(
    "        block.shard -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()",
    """
        ranks, length = dist.get_world_size(), len(block.shard)
        row = torch.zeros(ranks * length, dtype=x.dtype)
        row[: weight_grad.numel()] = weight_grad.flatten()
        total = torch.empty_like(block.shard)
        dist.reduce_scatter(total, list(row.view(ranks, length)))
        block.shard -= lr * total / ranks
    """,
)

# %% reduces all gradients when backward is over
# told: What can you do with it before the next block's backward
edit(
    "grad = loss_grad(x)",
    "grad, grads = loss_grad(x), []",
    "        block.free()\n        block.shard",
    """
        block.free()
        grads.append(weight_grad)
    for block, weight_grad in zip(reversed(blocks), grads):
        block.shard""",
)

# %% reduces each gradient twice, once to look at it
# told: A gradient was reduced more than once
edit(
    "        block.free()\n        block.shard",
    """
        block.free()
        assert block.reduce_scatter(weight_grad).isfinite().all()
        block.shard""",
)

# %% assigns to the full weight
# told: What would remain of a change to it
edit(
    """
        block.free()
        block.shard -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()""",
    """
        block.weight -= lr * weight_grad
        block.free()""",
)

# %% keeps the weights in a list
# told: Which variable of yours holds it
edit(
    "last = blocks[-1]",
    "last, weights = blocks[-1], []",
    "block.gather()\n        x",
    "block.gather()\n        weights.append(block.weight)\n        x",
)

# %% takes the full gradient off the shard
# told: Which gradient has the same length
edit(
    "block.shard -= lr * block.reduce_scatter(weight_grad)",
    "block.reduce_scatter(weight_grad)\n        block.shard -= lr * weight_grad",
)
