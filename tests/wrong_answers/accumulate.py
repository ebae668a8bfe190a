# %% keeps DDP from sending at all, and averages by hand
# told: a forward outside of no_sync: False
edit(
    "nullcontext() if last else ddp",
    "ddp",
    "    optimizer.step()",
    """
    for parameter in ddp.parameters():
        torch.distributed.all_reduce(parameter.grad)
        parameter.grad /= torch.distributed.get_world_size()
    optimizer.step()""",
)

# %% leaves DDP unable to send
# told: require_backward_grad_sync: False
edit("    optimizer.step()", "    ddp.require_backward_grad_sync = False\n    optimizer.step()")

# %% makes the learning rate smaller for good
# told: final value of the learning rate
edit("optimizer.step()", "optimizer.step()\n    optimizer.param_groups[0]['lr'] *= 0.9")
