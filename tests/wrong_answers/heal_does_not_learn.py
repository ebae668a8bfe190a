# %% the optimizer gets the parameters that it has already
# told: The loss stays where it was
def heal_does_not_learn(model, batches):
    parameters = list(model.parameters())
    fully_shard(model)
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    losses = []
    for x, y in batches:
        model.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses
