# %% DDP alone: no one deals out the rows
# told: DDP deals out no rows
# right at: 1
edit(
    ", sampler=sampler",
    ", shuffle=True",
    "        sampler.set_epoch(epoch)",
    "",
)

# %% all-reduces the loss in each step, one more message to wait for
# told: Which of your lines send something in a step
# told: all_reduce: 36 bytes
edit("optimizer.step()", "optimizer.step()\n            dist.all_reduce(loss.detach())")

# %% waits for the last batch of an epoch, as if gradients were accumulated
# told: or keep DDP from sending
# told: all_reduce: 10.6667 bytes
edit(
    "for images",
    "for number, (images",
    "labels in loader",
    "labels) in enumerate(loader, start=1)",
    "loss = F",
    "ddp.require_backward_grad_sync = number == len(loader)\n            loss = F",
)

# %% as if the weights were to be saved
# told: does every rank return it
# right at: 1
edit("    return", "    if dist.get_rank() == 0:\n        return")
