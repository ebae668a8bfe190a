# %% calls backward itself, and the graph is used up
# told: uses up or cuts off
edit("    total = loss", "    loss.backward()\n    total = loss")

# %% keeps the loss of every call, and with it the graph
# told: earlier graphs in memory
edit(
    "def global_loss",
    "LOSSES = []\n\n\ndef global_loss",
    "    total = loss",
    "    LOSSES.append(loss)\n    total = loss",
)

# %% 0 instead of 0.0: where there are no rows, the tensor is int64
# told: different shape or dtype on the ranks
# right at: 1
edit("else 0.0", "else 0")

# %% what comes back still has the graph of the loss
# told: keeps the graph of its step in memory
edit(
    "loss.item() * rows if rows else 0.0",
    "loss * rows if rows else loss.nan_to_num() * 0",
    "torch.tensor([total, rows], device=loss.device)",
    "torch.stack([total, torch.tensor(float(rows))])",
    ".item()",
    "",
)

# %% an object collective is two
# told: An object collective is two
body("""
    pairs = [None] * dist.get_world_size()
    dist.all_gather_object(pairs, (loss.item(), rows))
    return sum(mean * n for mean, n in pairs if n) / sum(n for _, n in pairs)
""")

# %% one collective for the losses, one for the rows
# told: Which numbers could travel in the same tensor
edit(
    "    return",
    "    all_rows = torch.tensor(rows)\n    dist.all_reduce(all_rows)\n    return",
    "totals[1]",
    "all_rows",
)

# %% writes into the loss, whose memory detach shares
# told: detach() and data share
# right at: 1
edit(
    "    total = loss.item() * rows if rows else 0.0",
    "    if not rows:\n        loss.detach().zero_()\n    total = loss.item() * rows",
)

# %% rounds the sum over all rows to bfloat16
# told: Which of your numbers are bfloat16, too?
# right at: 1
edit("totals[0] / totals[1]", "totals[0].to(loss.dtype) / totals[1]")
