# %% cuts each batch of a rank's own rows once more
# told: cut twice
# right at: 1
edit(
    "        for images, labels in loader:",
    """        for batch in loader:
            images, labels = (one.chunk(dist.get_world_size())[0] for one in batch)""",
)


# %% DDP alone: no one deals out the rows
# told: DDP deals out no rows
# right at: 1
edit(
    ", sampler=sampler",
    ", shuffle=True",
    "        sampler.set_epoch(epoch)",
    "",
)


# %% destroys the group of its caller
# told: also ends it
edit("    return", "    dist.destroy_process_group()\n    return")


# %% all-reduces the loss in each step, one more message to wait for
# told: A few numbers more than the gradients
edit("optimizer.step()", "optimizer.step()\n            dist.all_reduce(loss.detach())")


# %% waits for the last batch of an epoch, as if gradients were accumulated
# told: What keeps DDP from sending
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


# %% asks the loader to remember the epoch
# told: It must be told the epoch
edit("sampler.set_epoch", "loader.set_epoch")
