# %% returns nothing
# told: What does your function return? The caller calls it
edit("return finish", "pass")

# %% a hook on the frozen one as well
# told: A frozen parameter takes no hook
edit("if parameter.requires_grad:", "if True:")

# %% each gradient twice
# told: Is a gradient sent twice, or are zeros sent beside it
edit(
    "        started.append(dist",
    "        dist.all_reduce(torch.zeros(3), async_op=True).wait()\n        started.append(dist",
)

# %% nobody waits
# told: Which line waits for the ones that yours has started
edit("            work.wait()", "            pass")

# %% divided by the wrong number
# told: Whose gradients are in this one, how often
edit("/= dist.get_world_size()", "/= 7")
