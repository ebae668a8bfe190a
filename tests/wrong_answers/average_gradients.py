# %% divides while the collectives are under way
# told: use that tensor before
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

# %% a rank with an overflow stays away
# told: the first call was right
# told: Call 6 of the default group
# right at: 1
edit(
    "if parameter.grad is not None:",
    "if parameter.grad is not None and parameter.grad.isfinite().all():",
)

# %% parameters of the model itself are left out
# told: matrix.grad was
# told: Is the mean written into .grad itself
# right at: 1
edit("model.parameters()", "(p for layer in model.children() for p in layer.parameters())")

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

# %% the function of the world size, and not the number that it returns
# told: Which call lacks its ()?
edit("/= dist.get_world_size()", "/= dist.get_world_size")
