# %% everybody's tensors in one message
# told: What do you send that grows with the tensors
def same_on_all_ranks(tensors):
    own = torch.cat([one.contiguous().view(-1).view(torch.uint8) for one in tensors])
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return [rank for rank, one in enumerate(everyone) if not torch.equal(one, everyone[0])]
