# %% one flat vector, DiLoCo's way with an optimizer for the meetings
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def every_h_steps(model, batches, every, rate):
    start = parameters_to_vector(model.parameters()).detach().clone()
    outer = torch.optim.SGD([start], lr=rate)
    for i in range(0, len(batches), every):
        vector_to_parameters(start.clone(), model.parameters())
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches[i : i + every]:
            loss = ((model(x) - y) ** 2).mean()
            inner.zero_grad()
            loss.backward()
            inner.step()
        with torch.no_grad():
            start.grad = start - parameters_to_vector(model.parameters())
            dist.all_reduce(start.grad, op=dist.ReduceOp.SUM)
            start.grad /= dist.get_world_size()
            outer.step()
    vector_to_parameters(start, model.parameters())


# %% the weights travel, not the differences
import copy


def every_h_steps(model, batches, every, rate):
    reference = copy.deepcopy(model)
    for step, (x, y) in enumerate(batches):
        grads = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                p.sub_(0.1 * g)
            if (step + 1) % every and step + 1 != len(batches):
                continue
            for p, r in zip(model.parameters(), reference.parameters()):
                mean = p.clone() / dist.get_world_size()
                dist.all_reduce(mean)
                r.lerp_(mean, rate)
                p.copy_(r)
