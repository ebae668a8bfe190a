# %% the Parameters stay, but not what they lie in
# told: lies in other memory than before
edit("        dist", "        tensor.data = tensor.detach().clone()\n        dist")

# %% puts new Parameters in the place of those that the optimizer knows
# told: is another Parameter than before
edit(
    "    for tensor",
    """
    for module in model.modules():
        for name, old in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(old.detach().clone(), old.requires_grad))
    for tensor""",
)

# %% rank 0 sends to rank 1 alone
# told: Which rank's numbers are in this tensor
# told: came back value of kernel: [[[[inf,
# right at: 1, 2
edit("tensor.detach(), src", "tensor.detach() if dist.get_rank() < 2 else tensor.clone(), src")

# %% the order of a set of names is not the same in all processes
# told: shape or dtype
# right at: 1
edit(
    "    for tensor in (*model.parameters(), *model.buffers()):",
    """
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    for tensor in map(tensors.get, set(tensors)):""",
)

# %% a frozen parameter wants a gradient afterwards
# told: frozen has requires_grad=True
edit("    for tensor", "    model.requires_grad_()\n    for tensor")

# %% thinks of the weights alone
# told: Something else has come to rank 1, but not this
# right at: 1
edit(
    "(*model.parameters(), *model.buffers())",
    "[one for name, one in model.state_dict().items() if name.endswith('weight')]",
)
