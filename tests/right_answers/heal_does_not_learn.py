# %% the groups of the old optimizer get the new parameters
def heal_does_not_learn(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    losses = []
    for x, y in batches:
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    dist.all_reduce(losses, op=dist.ReduceOp.AVG)
    return losses.tolist()
