# %% looks at its own loss, and leaves the others alone with the all-reduce
# told: hangs
edit(
    "            scaler.scale(loss)",
    "            if not loss.isfinite():\n                return\n            scaler.scale(loss)",
)

# %% asks the other ranks what they know already
# told: the right step, but rank 0 has sent
edit("    scaler.step(", "    torch.distributed.all_reduce(torch.ones(()))\n    scaler.step(")

# %% unscales after every micro-batch
# told: How often may that happen
edit(
    "    scaler.unscale_(optimizer)  # once; clipping needs the real gradients\n",
    "",
    "  # the last one sends the sum of all",
    "\n            scaler.unscale_(optimizer)",
)

# %% updates the scale before any gradient was looked at
# told: Which of them has run for this optimizer
edit("  # the last one sends the sum of all", "\n            scaler.update()")

# %% no loss is scaled
# told: Which loss needs backward
edit("scaler.scale(loss)", "loss")
