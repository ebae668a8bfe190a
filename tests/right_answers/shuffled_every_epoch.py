# %% the loader has a generator of its own, and leaves the state of torch's generator as it is
edit("sampler=sampler)", "sampler=sampler, generator=torch.Generator())")


# %% without a loader: one order for all ranks, dealt like cards
def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    generator = torch.Generator().manual_seed(seed)
    trained_on = []
    for _ in range(epochs):
        order = torch.randperm(len(dataset), generator=generator).tolist()
        order += order * dist.get_world_size()
        ranks = dist.get_world_size()
        dealt = order[: -(-len(dataset) // ranks) * ranks]
        trained_on.append([dataset[place] for place in dealt[dist.get_rank() :: ranks]])
    return trained_on
