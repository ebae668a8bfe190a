# %% PyTorch's own exchange, and the numbers of the experts sent along
def dispatch_tokens(tokens, expert, experts):
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    own, size = len(experts), dist.get_world_size()
    home = expert // own
    there = [(home == rank).nonzero().flatten() for rank in range(size)]
    place = torch.cat(there)
    sent = torch.tensor([len(rows) for rows in there])
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    sent, received = sent.tolist(), received.tolist()
    numbers = torch.empty(sum(received), dtype=torch.int64)
    dist.all_to_all_single(numbers, expert[place] % own, received, sent)
    rows = all_to_all_single_autograd(tokens[place], received, sent, dist.group.WORLD)
    outputs = torch.bmm(rows[:, None], experts[numbers])[:, 0]
    outputs = all_to_all_single_autograd(outputs, sent, received, dist.group.WORLD)
    return tokens.new_zeros(len(tokens), experts.shape[2]).index_add(0, place, outputs)


# %% one function for everything, with its backward by hand
def dispatch_tokens(tokens, expert, experts):
    own, size = len(experts), dist.get_world_size()

    def exchange(rows, received, sent):
        arrived = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(arrived, rows.contiguous(), received, sent)
        return arrived

    order = sorted(range(len(expert)), key=lambda place: expert[place])
    back = torch.tensor(order, dtype=torch.int64).argsort()
    counts = torch.tensor([int((expert == e).sum()) for e in range(size * own)])
    incoming = exchange(counts, [own] * size, [own] * size).view(size, own).tolist()
    sent, received = counts.view(size, own).sum(1).tolist(), [sum(row) for row in incoming]
    numbers = [e for row in incoming for e, count in enumerate(row) for _ in range(count)]

    class Dispatch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tokens, experts):
            rows = exchange(tokens[order], received, sent)
            ctx.save_for_backward(rows, experts)
            outputs = [rows[i] @ experts[e] for i, e in enumerate(numbers)]
            outputs = torch.stack(outputs) if outputs else rows.new_empty(0, experts.shape[2])
            return exchange(outputs, sent, received)[back]

        @staticmethod
        def backward(ctx, gradient):
            rows, experts = ctx.saved_tensors
            gradient = exchange(gradient[order], received, sent)
            of_experts, of_rows = torch.zeros_like(experts), torch.zeros_like(rows)
            for i, e in enumerate(numbers):
                of_experts[e] += torch.outer(rows[i], gradient[i])
                of_rows[i] = experts[e] @ gradient[i]
            return exchange(of_rows, sent, received)[back], of_experts

    return Dispatch.apply(tokens, experts)


# %% tokens that stay on their rank are not sent
def dispatch_tokens(tokens, expert, experts):
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    size, own = dist.get_world_size(), len(experts)
    home, number = expert // own, expert % own

    def compute(rows, numbers):
        return torch.einsum("nw,nwo->no", rows, experts[numbers])

    here = (home == dist.get_rank()).nonzero().flatten()
    away = (home != dist.get_rank()).nonzero().flatten()
    away = away[home[away].argsort(stable=True)]
    sent = home[away].bincount(minlength=size)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    sent, received = sent.tolist(), received.tolist()
    numbers = torch.empty(sum(received), dtype=torch.int64)
    dist.all_to_all_single(numbers, number[away], received, sent)
    rows = all_to_all_single_autograd(tokens[away], received, sent, dist.group.WORLD)
    back = all_to_all_single_autograd(compute(rows, numbers), sent, received, dist.group.WORLD)
    outputs = torch.zeros(len(tokens), experts.shape[2], dtype=tokens.dtype)
    outputs = outputs.index_copy(0, here, compute(tokens[here], number[here]))
    return outputs.index_copy(0, away, back)
