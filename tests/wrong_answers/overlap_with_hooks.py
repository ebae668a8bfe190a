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

# %% nobody waits
# told: Which line waits for the ones that yours has started
edit("started.pop().wait()", "started.pop()")

# %% divided by the wrong number
# told: Whose gradients are in this one, how often
edit("/= dist.get_world_size()", "/= 7")

# %% the last five only after backward
# told: Which gradients are sent late
# right at: 1
import torch.distributed as dist


def overlap_with_hooks(model):
    works, later = [], []

    def hook(p):
        p.grad /= dist.get_world_size()
        if len(works) < 3:
            works.append(dist.all_reduce(p.grad, async_op=True))
        else:
            later.append(p)

    for p in model.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(hook)

    def finish():
        works.extend(dist.all_reduce(p.grad, async_op=True) for p in later)
        for work in works:
            work.wait()
        works.clear()
        later.clear()

    return finish
