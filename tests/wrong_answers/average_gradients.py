# %% starts the collectives and does not wait for them
# told: still at work when your function returned
edit("dist.all_reduce(parameter.grad)", "dist.all_reduce(parameter.grad, async_op=True)")


# %% divides while the collectives are under way
# told: Which of your lines use that tensor before?
# right at: 1
edit(
    "    for parameter",
    "    works = []\n    for parameter",
    "dist.all_reduce(parameter.grad)",
    "works.append(dist.all_reduce(parameter.grad, async_op=True))",
    "get_world_size()  # all_reduce adds up",
    "get_world_size() ** 3\n    [work.wait() for work in works]",
)


# %% keeps the parameters of the first model
# told: Made first, this call is right
# told: (call 3; the results before it were right)
# right at: 1
edit(
    "def average",
    "KEPT = []\n\n\ndef average",
    "    for parameter in model.parameters()",
    "    KEPT.extend([] if KEPT else model.parameters())\n    for parameter in KEPT",
)


# %% a parameter without gradient is not passed over
# told: A frozen parameter has no gradient
edit("if parameter.grad is not None:", "if True:")


# %% keeps the gradients of the first step
# told: What does your function keep from one call to the next?
# told: (call 2; the results before it were right)
# right at: 1
import torch.distributed as dist

GRADIENTS = []


def average_gradients(model):
    if not GRADIENTS:
        GRADIENTS.extend(p.grad for p in model.parameters() if p.grad is not None)
    for gradient in GRADIENTS:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


# %% divides, and sends nothing
# told: Nothing was sent
# right at: 1
edit("dist.all_reduce(parameter.grad)", "pass")


# %% a rank with an overflow stays away
# told: the first call was right
# told: Call 6 of the default group
# right at: 1
edit(
    "if parameter.grad is not None:",
    "if parameter.grad is not None and parameter.grad.isfinite().all():",
)


# %% rank 0 alone comes to the collective
# told: Call 1 of the default group
# told: rank 1
# told: has returned without it
# right at: 1
edit(
    "if parameter.grad is not None:",
    "if parameter.grad is not None and dist.get_rank() == 0:",
)


# %% parameters of the model itself are left out
# told: matrix.grad was
# told: Is the mean written into .grad itself
# right at: 1
edit("model.parameters()", "(p for layer in model.children() for p in layer.parameters())")


# %% reduces to rank 0, where alone the mean is made
# told: one rank alone has the result
# right at: 1
edit(
    "all_reduce(parameter.grad)",
    "reduce(parameter.grad, 0)",
    "            parameter.grad /=",
    "            if dist.get_rank() == 0:\n                parameter.grad /=",
)


# %% break instead of continue
# told: inner.bias.grad was
# told: Is the mean written into .grad itself
# right at: 1
edit(
    "if parameter.grad is not None:",
    "if parameter.grad is None:\n            break\n        if True:",
)


# %% averages the weights
# told: do you write into, the parameters or their
# right at: 1
body("""
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()
""")


# %% a float64 gradient goes through a float32 vector
# told: right up to the rounding of float32
edit(
    "dist.all_reduce(parameter.grad)\n            parameter.grad /= dist.get_world_size()",
    "flat = parameter.grad.float()\n            dist.all_reduce(flat)\n"
    "            parameter.grad.copy_(flat / dist.get_world_size())",
)


# %% asks whether a gradient is true, not whether it is None
# told: neither true nor false
edit("if parameter.grad is not None:", "if parameter.grad:")


# %% view(-1) fails for a gradient that is not contiguous
# told: view needs contiguous memory
edit("all_reduce(parameter.grad)", "all_reduce(parameter.grad.view(-1))")


# %% passes over a gradient that is zero, which is so on one rank only
# told: the first call was right
# told: Call 9 of the default group
# right at: 1
edit("if parameter.grad is not None:", "if parameter.grad is not None and parameter.grad.any():")


# %% divides by a number that is too large
# told: This is a multiple of the mean
edit("dist.get_world_size()", "(dist.get_world_size() + 1)")
