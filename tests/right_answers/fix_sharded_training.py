# %% the groups of the old optimizer get the new parameters
def fix_sharded_training(model, batches):
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
