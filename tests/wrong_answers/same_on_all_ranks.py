# %% everybody's tensors in one message
# told: What do you send that grows with the tensors
def same_on_all_ranks(tensors):
    own = torch.cat([one.contiguous().view(-1).view(torch.uint8) for one in tensors])
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return [rank for rank, one in enumerate(everyone) if not torch.equal(one, everyone[0])]


# %% a checksum of what is printed
# told: Which two are equal
# told: required [2] on every rank
edit("zlib.crc32(bits.numpy(), total)", "zlib.crc32(repr(tensor).encode(), total)")

# %% compares as float32
# told: Which two are equal
# told: required [1, 2] on every rank
edit(
    "tensor.contiguous().view(-1).view(torch.uint8)",
    "tensor.float().contiguous().view(-1).view(torch.uint8)",
)

# %% a weak checksum
# told: Which two are equal
# told: required [3] on every rank
edit("zlib.crc32(bits.numpy(), total)", "zlib.adler32(bits.numpy(), total)")


# %% a checksum of what torch.save writes, which is the whole storage
# told: Which two are equal
# told: came back [1, 2, 3] on every rank
def same_on_all_ranks(tensors):
    import io

    file = io.BytesIO()
    torch.save(tensors, file)
    own = torch.tensor([zlib.crc32(file.getvalue())])
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return [rank for rank, one in enumerate(everyone) if one != everyone[0]]
