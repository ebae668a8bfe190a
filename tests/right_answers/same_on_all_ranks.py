# %% a cryptographic hash, all 32 bytes of it
import hashlib


def same_on_all_ranks(tensors):
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    own = torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
    everyone = torch.empty(dist.get_world_size() * 32, dtype=torch.uint8)
    dist.all_gather_into_tensor(everyone, own)
    rows = everyone.view(-1, 32).tolist()
    return [rank for rank in range(len(rows)) if rows[rank] != rows[0]]
