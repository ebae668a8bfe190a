# %% returns nothing
# told: What does your function return? The caller calls it
edit("return finish", "pass")

# %% a hook on the frozen one as well
# told: A frozen parameter takes no hook
edit("if parameter.requires_grad:", "if True:")

# %% each gradient twice
# told: Is a gradient sent twice, in another dtype
edit(
    "        started.append(dist",
    "        dist.all_reduce(torch.zeros(3), async_op=True).wait()\n        started.append(dist",
)

# %% divided by the wrong number
# told: Whose gradients are in this one, how often
edit("/= dist.get_world_size()", "/= 7")

# %% the last six only after backward
# told: Which gradients are sent late
# right at: 1
edit(
    "started = []",
    "started, later = [], []",
    "        started.append(",
    """
        if len(started) == 2:
            later.append(parameter)
            return
        started.append(""",
    "    def finish() -> None:",
    """
    def finish() -> None:
        while later:
            started.append(dist.all_reduce(later.pop().grad, async_op=True))""",
)

# %% a hook that comes before the gradient is accumulated
# told: runs before the gradient is in
edit(
    "parameter.register_post_accumulate_grad_hook(send)",
    "parameter.register_hook(lambda _, parameter=parameter: send(parameter))",
)
