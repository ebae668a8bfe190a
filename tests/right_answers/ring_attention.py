# %% a running maximum, keys and values in messages of their own, one division at the end
def ring_attention(query, key, value):
    rank, size = dist.get_rank(), dist.get_world_size()
    highest = torch.full_like(query[..., 0], float("-inf"))
    above, below = torch.zeros_like(query), torch.zeros_like(highest)
    for owner in [*range(rank, -1, -1), *range(size - 1, rank, -1)]:
        if owner <= rank:
            scores = torch.einsum("hqd,hkd->hqk", query, key) * query.shape[-1] ** -0.5
            if owner == rank:
                scores += torch.full(scores.shape[1:], float("-inf"), dtype=scores.dtype).triu(1)
            new = torch.maximum(highest, scores.amax(-1))
            weights = torch.exp(scores - new[..., None])
            shrink = torch.exp(highest - new)
            above = above * shrink[..., None] + weights @ value
            below, highest = below * shrink + weights.sum(-1), new
        if owner != (rank + 1) % size:
            next_key, next_value = torch.empty_like(key), torch.empty_like(value)
            calls = [
                dist.P2POp(dist.isend, key, (rank + 1) % size),
                dist.P2POp(dist.irecv, next_key, (rank - 1) % size),
                dist.P2POp(dist.isend, value, (rank + 1) % size),
                dist.P2POp(dist.irecv, next_value, (rank - 1) % size),
            ]
            for work in dist.batch_isend_irecv(calls):
                work.wait()
            key, value = next_key, next_value
    return above / below[..., None]


# %% a chain: the last rank sends nothing, and no block goes to a rank that may not see it
def ring_attention(query, key, value):
    rank, size = dist.get_rank(), dist.get_world_size()
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, log_sum = (one[0] for one in flash(query[None], key[None], value[None], 0.0, True))
    block = torch.cat([key, value])
    for number in range(size - 1):
        arriving, works = torch.empty_like(block), []
        if rank < size - 1 and number <= rank:
            works.append(dist.isend(block, rank + 1))
        if number < rank:
            works.append(dist.irecv(arriving, rank - 1))
        for work in works:
            work.wait()
        if number < rank:
            block = arriving
            keys, values = (one[None] for one in block.chunk(2))
            part, part_sum = (one[0] for one in flash(query[None], keys, values))
            weight = torch.sigmoid(part_sum.to(out.dtype) - log_sum)[..., None]
            out = out + weight * (part - out)
            log_sum = torch.logaddexp(log_sum, part_sum.to(out.dtype))
    return out
