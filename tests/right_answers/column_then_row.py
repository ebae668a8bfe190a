# %% a hook in the place of the first class, a constant in that of the second
def column_then_row(x, gate, up, up_bias, down, down_bias):
    size, rank = dist.get_world_size(), dist.get_rank()

    def add_up(tensor):
        total = tensor.detach().clone()
        dist.all_reduce(total)
        return total

    x = x * 1
    x.register_hook(add_up)
    units = F.silu(x @ gate.chunk(size, 1)[rank])
    units = units * (x @ up.chunk(size, 1)[rank] + up_bias.chunk(size)[rank])
    part = units @ down.chunk(size)[rank]
    return part + (add_up(part) - part).detach() + down_bias


# %% both products in one, and the gradient of all of it by hand
def column_then_row(x, gate, up, up_bias, down, down_bias):
    size, rank = dist.get_world_size(), dist.get_rank()
    both = torch.cat([gate.chunk(size, 1)[rank], up.chunk(size, 1)[rank]], dim=1)
    bias = up_bias.chunk(size)[rank]

    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, both, bias, down):
            ctx.save_for_backward(x, both, bias, down)
            gate, up = (x @ both).chunk(2, -1)
            y = (F.silu(gate) * (up + bias)) @ down
            dist.all_reduce(y)
            return y

        @staticmethod
        def backward(ctx, gradient):
            inputs = [one.detach().requires_grad_() for one in ctx.saved_tensors]
            with torch.enable_grad():
                gate, up = (inputs[0] @ inputs[1]).chunk(2, -1)
                part = (F.silu(gate) * (up + inputs[2])) @ inputs[3]
            gradients = torch.autograd.grad(part, inputs, gradient)
            dist.all_reduce(gradients[0])
            return gradients

    return Cut.apply(x, both, bias, down.chunk(size)[rank]) + down_bias
