# %% asked before each step, a gathered list, a wake-up in the place of a flag
import itertools


def stop_together(step, steps):
    here = torch.zeros(1, dtype=torch.bool)
    signal.signal(signal.SIGUSR1, lambda *_: here.fill_(True))
    made = 0
    for made in itertools.count():
        everyone = [torch.zeros_like(here) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, here.clone())
        if made == steps or torch.cat(everyone).any():
            break
        step()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return made


# %% objects, and a class
class Ear:
    heard = False

    def __call__(self, number, frame):
        self.heard = True


def stop_together(step, steps):
    ear = Ear()
    signal.signal(signal.SIGUSR1, ear)
    made, go = 0, True
    while go and made < steps:
        step()
        made += 1
        words = [None] * dist.get_world_size()
        dist.all_gather_object(words, "stop" if ear.heard else "go")
        go = "stop" not in words
    return made


# %% one flag is under way during the next step
def stop_together(step, steps):
    heard = []
    signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    work, told = None, torch.zeros(1)
    for done in range(1, steps + 1):
        step()
        if work:
            work.wait()
            if told:
                return done
        told = torch.tensor([float(len(heard))])
        work = dist.all_reduce(told, async_op=True)
    work.wait()
    return steps
