# %% each rank's key, and the sampler asked for the order
def resume_exactly(job, steps, saved):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    saved = saved or {"epoch": 0, "batch": 0}
    if "weights" in saved:
        for name, value in job.model.named_parameters():
            value.data.copy_(saved["weights"][name])
        job.optimizer.load_state_dict(saved["optimizer"])
    epoch, begin, made = saved["epoch"], saved["batch"], 0
    size = job.loader.batch_size
    if f"random {rank}" in saved:
        torch.set_rng_state(saved[f"random {rank}"])
    while made < steps:
        job.sampler.set_epoch(epoch)
        mine = list(job.sampler)
        batches = [torch.tensor(mine[n : n + size]) for n in range(0, len(mine), size)]
        for batch in batches[begin : begin + steps - made]:
            job.step(batch)
            made, begin = made + 1, begin + 1
        if begin == len(batches):
            epoch, begin = epoch + 1, 0
    own = torch.get_rng_state()
    every = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(every, own)
    return {
        "epoch": epoch,
        "batch": begin,
        "weights": dict(job.model.named_parameters()),
        "optimizer": job.optimizer.state_dict(),
        **{f"random {rank}": one for rank, one in enumerate(every)},
    }


# %% replays the steps that are done, without training, and restores the state last
def resume_exactly(job, steps, saved):
    done = saved["done"] if saved else 0
    number = 0
    for epoch in range(1000):
        job.sampler.set_epoch(epoch)
        for batch in job.loader:
            if number == done + steps:
                break
            if number == done and saved:
                job.model.load_state_dict(saved["model"])
                job.optimizer.load_state_dict(saved["optimizer"])
                torch.random.set_rng_state(saved["random"][dist.get_rank()])
            if number >= done:
                job.step(batch)
            number += 1
        if number == done + steps:
            break
    gathered = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(torch.random.get_rng_state(), gathered, dst=0)
    return {
        "done": number,
        "model": job.model.state_dict(),
        "optimizer": job.optimizer.state_dict(),
        "random": gathered,
    }
