# %% the outputs stay in the order in which they were sent
# told: not in the order of the tokens
edit("returned[order.argsort()]", "returned")


# %% the way back is outside of the graph
# told: No gradient has arrived there
edit("Exchange.apply(outputs, received, sent)", "Exchange.apply(outputs.detach(), received, sent)")


# %% the counts of backward are those of forward
# told: What does each add up to
# right at: 1
edit(
    "new_empty(sum(ctx.sent), gradient.shape[1])",
    "new_empty(sum(ctx.received), gradient.shape[1])",
    "ctx.sent, ctx.received)\n            return",
    "ctx.received, ctx.sent)\n            return",
)


# %% every rank gets all tokens
# told: all_to_all_single, and nothing else
def dispatch_tokens(tokens, expert, experts):
    from torch.distributed.nn.functional import all_gather

    size, own, rank = dist.get_world_size(), len(experts), dist.get_rank()
    lengths = [None] * size
    dist.all_gather_object(lengths, len(tokens))
    pad = max(lengths)
    padded = torch.cat([tokens, tokens.new_zeros(pad - len(tokens), tokens.shape[1])])
    numbers = torch.cat([expert, expert.new_full((pad - len(expert),), -1)])
    everyone = torch.cat(all_gather(padded))
    all_numbers = [torch.empty_like(numbers) for _ in range(size)]
    dist.all_gather(all_numbers, numbers)
    local = torch.cat(all_numbers) - rank * own
    outputs = everyone.new_zeros(len(everyone), experts.shape[2])
    for number in range(own):
        outputs = outputs + (local == number)[:, None] * (everyone @ experts[number])
    total = torch.stack(all_gather(outputs)).sum(0)
    return total[rank * pad : rank * pad + len(tokens)]


# %% an exchange for each expert of a rank
# told: One message to each rank can carry
def dispatch_tokens(tokens, expert, experts):
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    size, own = dist.get_world_size(), len(experts)
    result = tokens.new_zeros(len(tokens), experts.shape[2])
    for number in range(own):
        there = [(expert == rank * own + number).nonzero().flatten() for rank in range(size)]
        sent = torch.tensor([len(one) for one in there])
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        both = received.tolist(), sent.tolist()
        place = torch.cat(there)
        rows = all_to_all_single_autograd(tokens[place], *both, dist.group.WORLD)
        back = all_to_all_single_autograd(rows @ experts[number], *both[::-1], dist.group.WORLD)
        result = result.index_add(0, place, back)
    return result


# %% backward sends nothing
# told: Gradients travel the other way
# right at: 1
edit("return back, None", "return gradient, None")


# %% the experts travel instead of the tokens
# told: something else than
def dispatch_tokens(tokens, expert, experts):
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    size, own = dist.get_world_size(), len(experts)
    split = [own] * size
    copies = experts.repeat(size, 1, 1)
    everyone = all_to_all_single_autograd(copies, split, split, dist.group.WORLD)
    return torch.einsum("nw,nwo->no", tokens, everyone[expert])
