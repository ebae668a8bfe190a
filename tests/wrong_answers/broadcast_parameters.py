# %% starts the broadcasts and does not wait for them
# told: 10 of 10 operations
# told: still at work when your function returned
edit("src=0", "src=0, async_op=True")


# %% the Parameters stay, but not what they lie in
# told: lies in other memory than before
def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        received = tensor.detach().clone()
        dist.broadcast(received, src=0)
        tensor.data = received


# %% puts new Parameters in the place of those that the optimizer knows
# told: is another Parameter than before
def broadcast_parameters(model):
    for module in model.modules():
        for name, old in list(module.named_parameters(recurse=False)):
            new = old.detach().clone()
            dist.broadcast(new, src=0)
            setattr(module, name, nn.Parameter(new, requires_grad=old.requires_grad))
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)


# %% rank 0 sends to rank 1 alone
# told: Which rank's numbers are in this tensor
# told: came back [[[[inf,
# right at: 1, 2
def broadcast_parameters(model):
    for tensor in (*model.parameters(), *model.buffers()):
        message = tensor.detach().contiguous()
        if dist.get_rank() == 0 and dist.get_world_size() > 1:
            dist.send(message, dst=1)
        if dist.get_rank() == 1:
            dist.recv(message, src=0)
            tensor.detach().copy_(message)


# %% the order of a set of names is not the same in all processes
# told: shape or dtype on the ranks
# right at: 1
def broadcast_parameters(model):
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name in set(tensors):
        dist.broadcast(tensors[name].detach(), src=0)


# %% a frozen parameter wants a gradient afterwards
# told: frozen has requires_grad=True
def broadcast_parameters(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        dist.broadcast(parameter, src=0)
        parameter.requires_grad_(True)
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)


# %% thinks of the weights alone
# told: Something else has come to rank 1, but not this
# right at: 1
def broadcast_parameters(model):
    for name, tensor in model.state_dict().items():
        if name.endswith("weight"):
            dist.broadcast(tensor, src=0)
