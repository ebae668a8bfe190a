# %% futures that divide afterwards
def overlap_with_hooks(model):
    futures = []

    def hook(p):
        work = dist.all_reduce(p.grad, async_op=True)
        futures.append((work.get_future(), p))

    for p in model.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(hook)

    def finish():
        while futures:
            future, p = futures.pop()
            future.wait()
            p.grad.div_(dist.get_world_size())

    return finish


# %% pairs of gradients in one flat tensor
def overlap_with_hooks(model):
    trained = [p for p in model.parameters() if p.requires_grad]
    pending, sent = [], []

    def send():
        flat = torch.cat([p.grad.flatten() for p in pending])
        sent.append((list(pending), flat, dist.all_reduce(flat, async_op=True)))
        pending.clear()

    def hook(p):
        pending.append(p)
        if len(pending) == 2:
            send()

    for p in trained:
        p.register_post_accumulate_grad_hook(hook)

    def finish():
        if pending:
            send()
        for members, flat, work in sent:
            work.wait()
            parts = flat.split([p.numel() for p in members])
            for p, part in zip(members, parts, strict=True):
                p.grad = part.view_as(p) / dist.get_world_size()
        sent.clear()

    return finish
