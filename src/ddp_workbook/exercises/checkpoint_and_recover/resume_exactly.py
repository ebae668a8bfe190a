"""Mend a training loop that goes on from a checkpoint, but not as if nothing had happened.

All ranks call `resume_exactly(job, steps, saved)`. It makes the next `steps` steps, and returns a
checkpoint. What rank 0 returns is saved; every rank gets that as `saved` in the next call, in a new
process with a new `job`, whose random numbers begin anew. In the first call `saved` is None.

However often training is interrupted, it must end as if it had never been: the weights equal in
every bit, on 1, 2 and more ranks. The given loop forgets three things. Set no seed.

- `job.model` drops out units at random, from PyTorch's own random numbers: `torch.get_rng_state()`
  tells where they stand, `torch.set_rng_state(state)` takes them there. They differ by rank.
- `job.optimizer` has momentum. `job.sampler` is the DistributedSampler of `job.loader`.
- `job.loader` has a `generator` of its own. A DataLoader without one draws from PyTorch's random
  numbers each time a loop over it begins, so in a program of yours give it one, too.
- `job.step(batch)` makes one step on all ranks together. Its result is averaged over the ranks.
- `torch.load(weights_only=True)` reads the checkpoint: tensors, numbers, texts, lists, dicts.
"""

import contextlib
import hashlib
import io
from collections.abc import Callable
from itertools import count, islice, zip_longest
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, edit, in_words
from manyranks.diagnostics import user_code

MINUTES = 15
HINTS = [
    "Go through all that a step depends on: the weights, the gradients' history, the samples, the "
    "random numbers. Which of these does a new process have, and which only the old one?",
    "Only rank 0's checkpoint is kept. `dist.all_gather_object` brings what each rank has to all "
    "ranks; afterwards each takes its own.",
    "From the number of steps made and `len(job.loader)` follow the epoch and the batches to skip: "
    "`divmod`, and `islice` of itertools. Who must be told the epoch?",
]


def resume_exactly(job: Any, steps: int, saved: dict | None) -> dict:
    """Make the next `steps` steps after those of `saved`; return the checkpoint after them."""
    ### BEGIN SOLUTION
    done = 0
    if saved is not None:
        done = saved["done"]
        job.model.load_state_dict(saved["model"])
        job.optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["random"][dist.get_rank()])
    end = done + steps
    while done < end:
        epoch, skip = divmod(done, len(job.loader))
        job.sampler.set_epoch(epoch)
        for batch in islice(job.loader, skip, skip + end - done):
            job.step(batch)
            done += 1
    random = [None] * dist.get_world_size()
    dist.all_gather_object(random, torch.get_rng_state())  # each rank has its own
    return {
        "done": done,
        "model": job.model.state_dict(),
        "optimizer": job.optimizer.state_dict(),
        "random": random,
    }
    ### GIVEN
    # done = 0
    # if saved is not None:
    #     done = saved["done"]
    #     job.model.load_state_dict(saved["model"])
    # end = done + steps
    # while done < end:
    #     for batch in islice(job.loader, end - done):  # TODO: what does a new process not know?
    #         job.step(batch)
    #         done += 1
    # return {"done": done, "model": job.model.state_dict()}
    ### END SOLUTION


SAMPLES_PER_RANK, BATCH_SIZE, WIDTH = 8, 2, 6  # samples of a rank in an epoch, of a batch; features
SEED = 7
SAVES = count()  # of this rank, in all calls


class Job:
    """A small training, the same on all ranks but for its random numbers; it notes each step."""

    def __init__(self) -> None:
        world, rank = dist.get_world_size(), dist.get_rank()
        torch.manual_seed(SEED)
        self.model = nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        numbers = range(SAMPLES_PER_RANK * world)
        self.inputs = torch.randn(len(numbers), WIDTH)
        self.sampler = DistributedSampler(numbers, world, rank, seed=SEED)
        generator = torch.Generator()  # else a new iterator of the loader would draw from PyTorch's
        self.loader = DataLoader(numbers, BATCH_SIZE, sampler=self.sampler, generator=generator)
        torch.manual_seed(SEED + rank)
        self.samples: list[list[int]] = []
        self.random: list[str] = []

    def step(self, batch: torch.Tensor) -> None:
        """One step on the samples with these numbers: the mean of the ranks' gradients."""
        self.samples.append(batch.tolist())
        self.random.append(digest(torch.get_rng_state()))
        self.optimizer.zero_grad()
        inputs = self.inputs[batch]
        (self.model(inputs).squeeze(1) - inputs.sum(1)).square().mean().backward()
        parameters = [
            parameter for parameter in self.model.parameters() if parameter.grad is not None
        ]
        gradients = torch.cat([parameter.grad.flatten() for parameter in parameters])
        dist.all_reduce(gradients)
        parts = gradients.div_(dist.get_world_size()).split(
            [parameter.numel() for parameter in parameters]
        )
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad.copy_(part.view_as(parameter))
        self.optimizer.step()


def digest(*tensors: torch.Tensor) -> str:
    """Of all bits of these tensors."""
    return hashlib.sha256(
        b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)
    ).hexdigest()[:8]


def train_in_parts(resume_exactly: Callable, parts: tuple[int, ...]) -> dict[str, Any]:
    """Train in as many processes as there are parts, as far as `job` can tell."""
    saved = None
    results: dict[str, Any] = {"problem": "", "samples": [], "random": [], "weights": ""}
    for steps in parts:
        job = Job()
        returned = resume_exactly(job, steps, saved)
        results["samples"] += job.samples
        results["random"] += job.random
        results["weights"] = digest(*job.model.parameters())
        saved, results["problem"] = read_back(returned)
        if results["problem"]:
            break
    return results


@user_code.mark_finished_wait
def read_back(returned: Any) -> tuple[Any, str]:
    """On each rank: rank 0's checkpoint as it is read from a file; and why it cannot be."""
    store, name = dist.distributed_c10d._get_default_store(), f"saved {next(SAVES)}"
    if dist.get_rank() == 0:
        buffer = io.BytesIO()
        with contextlib.suppress(Exception):  # reading it says what is wrong
            torch.save(returned, buffer)
        store.set(name, buffer.getvalue())
    try:
        checkpoint = torch.load(io.BytesIO(store.get(name)), weights_only=True)
    except Exception as error:  # a file may hold anything
        return None, f"what torch.load refuses: {str(error).partition(chr(10))[0][:200]}"
    return checkpoint, "" if isinstance(checkpoint, dict) else in_words(checkpoint)


def first_difference(obs: Observation) -> int:
    """Which step is the first that differs."""
    pairs = zip_longest(obs.value, obs.expected)
    return next((n for n, (value, expected) in enumerate(pairs) if value != expected), 0)


def describe_samples(values: list, step: int) -> str:
    """The samples of a step, in words."""
    return f"samples {in_words(values[step])}" if step < len(values) else "no step"


def call_text(parts: tuple[int, ...]) -> str:
    """How many steps are made, and where a new process begins."""
    steps = [f"{number} step{'s' * (number > 1)}" for number in parts]
    return f"resume_exactly: {', then in a new process '.join(steps)}"


OWN_RANDOM = 'saved["random"][dist.get_rank()]'
CHECK = DistributedCheck(
    cases=lambda size: [(7,), (2, 5), (3, 1, 3)],  # an epoch has 4 steps
    make_args=lambda case: (case,),
    caller=train_in_parts,
    observe=lambda obs, case: obs,
    call_text=call_text,
    compare={
        "problem": Comparison(
            "The checkpoint is a dict of tensors, numbers, texts, lists and dicts. What is in it "
            "besides, or instead?",
            "",
            actual="rank 0 returned {value}",
            required="a dict that torch.load(weights_only=True) reads",
        ),
        "samples": Comparison(
            "Write down the epoch and the batch in it for each step. How does a new process get "
            "there from the number of steps that are done?",
            actual=lambda obs: (
                f"{describe_samples(obs.value, first_difference(obs))} in step "
                f"{first_difference(obs) + 1}, on rank {obs.rank}"
            ),
            required=lambda obs: describe_samples(obs.expected, first_difference(obs)),
        ),
        "random": Comparison(
            "When are they taken, whose are they, and what draws some of them between then and "
            "the next step?",
            actual=lambda obs: (
                f"from step {first_difference(obs) + 1} on, other random numbers on rank {obs.rank}"
            ),
            required="in each step and on each rank, those of an uninterrupted training",
        ),
        "weights": Comparison(
            "The samples and the random numbers are right. What else does a step depend on, and "
            "on which ranks?",
            actual=lambda obs: f"other weights on rank {obs.rank} after {sum(obs.case)} steps",
            required="the weights of an uninterrupted training, equal in every bit",
        ),
    },
    mistakes={
        "The sampler has the order of epoch 0 in every epoch. Who must tell it which one it is, "
        "and when?": edit("job.sampler.set_epoch(epoch)", "pass"),
        "The epoch begins again. Which of its batches were trained on before?": edit(
            "skip, skip + end - done", "end - done"
        ),
        "The new process begins with epoch 0. Which epoch was it in?": edit(
            "(epoch)", "(epoch - saved['done'] // len(job.loader) if saved else epoch)"
        ),
        "The first step of this process is the last one of the process before.": edit(
            'done = saved["done"]', 'done = saved["done"] - 1'
        ),
        "Dropout draws other numbers after each restart: this rank's begin anew. What holds where "
        "they stood?": edit(f"        torch.set_rng_state({OWN_RANDOM})\n", ""),
        "These are rank 0's random numbers, on every rank. Whose state does the checkpoint hold?": [
            edit(OWN_RANDOM, 'saved["random"][0]'),
        ],
        "A seed begins a new series of random numbers. The old one had gone some way: how far?": (
            edit(f"set_rng_state({OWN_RANDOM})", "manual_seed(saved['done'])")
        ),
        "The weights are the old ones at first, and the next step is another. What does momentum "
        "remember, and where?": edit(
            '        job.optimizer.load_state_dict(saved["optimizer"])\n', ""
        ),
        "The weights are those of a new model. Which line takes the saved ones?": edit(
            '        job.model.load_state_dict(saved["model"])\n', ""
        ),
    },
    may_seed=True,
    errors={
        "hangs": "Do all ranks reach the same collectives, equally often, and make as many steps?",
        "SIGSEGV": "torch 2.13 crashes in set_rng_state if the state is a row of a larger tensor. "
        "A clone of the row has memory of its own.",
        "KeyError": "Is there a value under this key in what rank 0 returned, and in the "
        "checkpoint of the first call as well?",
    },
    on_pass="interrupted after 2, 3 or 4 of 7 steps, training ends with the weights of an "
    "uninterrupted one, equal in every bit, at 1 to 4 ranks",
)
