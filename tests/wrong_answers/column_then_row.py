# %% every rank computes everything
# told: There are gradients in the blocks of other ranks
# right at: 1
body("return (F.silu(x @ gate) * (x @ up + up_bias)) @ down + down_bias")


# %% rows first: the hidden units are gathered
# told: all_reduce, and nothing else
def column_then_row(x, gate, up, up_bias, down, down_bias):
    size, rank = dist.get_world_size(), dist.get_rank()
    own = gate.chunk(size, 1)[rank], up.chunk(size, 1)[rank], up_bias.chunk(size)[rank]
    copy = x.view_as(x)

    def add_up(gradient):
        dist.all_reduce(gradient)
        return gradient

    copy.register_hook(add_up)
    units = F.silu(copy @ own[0]) * (copy @ own[1] + own[2])
    everyone = [torch.empty_like(units) for _ in range(size)]
    dist.all_gather(everyone, units.detach().contiguous())
    rows = down.chunk(size)
    parts = [units @ rows[r] if r == rank else everyone[r] @ rows[r].detach() for r in range(size)]
    return sum(parts) + down_bias


# %% the sum is made outside of the graph
# told: No gradient has arrived there
body("""
hidden = len(down) // dist.get_world_size()
own = slice(dist.get_rank() * hidden, (dist.get_rank() + 1) * hidden)
units = F.silu(x @ gate[:, own]) * (x @ up[:, own] + up_bias[own])
total = (units @ down[own]).detach()
dist.all_reduce(total)
return total + down_bias
""")


# %% the all-reduce of torch.distributed.nn adds up backward as well
# told: What is the gradient of a summand
# right at: 1
def column_then_row(x, gate, up, up_bias, down, down_bias):
    from torch.distributed.nn.functional import all_reduce

    size, rank = dist.get_world_size(), dist.get_rank()
    units = F.silu(x @ gate.chunk(size, 1)[rank])
    units = units * (x @ up.chunk(size, 1)[rank] + up_bias.chunk(size)[rank])
    return all_reduce(units @ down.chunk(size)[rank]) + down_bias


# %% rank 0 leaves the others alone in backward
# told: hangs
# right at: 1
edit(
    "            gradient = gradient.clone()\n",
    "            if dist.get_rank() == 0:\n                return gradient\n"
    "            gradient = gradient.clone()\n",
)

# %% the columns of down
# told: which rows of down, are this rank's
edit("down[own]", "down[:, own]")

# %% a rank keeps only its columns of y
# told: of shape (5, 4)
# right at: 1
edit(
    "AddUpRanks.apply(units @ down[own]) + down_bias",
    "(AddUpRanks.apply(units @ down[own]) + down_bias)[..., dist.get_rank() :]",
)

# %% an all-reduce for each output
# told: Which tensor would collect what several of yours carry
edit(
    "AddUpRanks.apply(units @ down[own])",
    "torch.stack([AddUpRanks.apply(part) for part in (units @ down[own]).unbind(-1)], -1)",
)
