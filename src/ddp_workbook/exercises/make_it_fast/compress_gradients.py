"""Write a communication hook that sends a quarter of the numbers, and keeps the rest for later.

DDP calls your function for each bucket in each step. `state` is a dict that is yours to fill, empty
before the first step. `bucket.buffer()` is the rank's gradient, a float32 vector, and
`bucket.index()` is the bucket's number. The buckets are the same in all steps.

- In its first step, a bucket sends its numbers 0, 4, 8, ...; in the second step 1, 5, 9, ...; in
  the third 2, 6, 10, ...; in the fourth 3, 7, 11, ...; then it begins again.
- What a rank has not sent is added to its gradient of the same bucket in the next step.
- Return a future. Its value is a vector as long as the bucket: where numbers were sent, the mean
  over the ranks of what they sent, and 0 elsewhere.
- Do not wait in the hook. `dist.all_reduce(tensor, async_op=True).get_future()` is a future, and
  its `.then(function)` another one, whose value is `function(future)`. In there,
  `future.value()[0]` is the sum.
- For each bucket make one all_reduce, of a quarter of its numbers, and nothing else.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, Pattern, edit
from ddp_workbook.judging.comm_comparisons import bytes_sent, calls_only
from manyranks.network.emulated_work import record_completed_calls

MINUTES = 12
HINTS = [
    "What must a bucket remember from one step to the next? There are two things.",
    "`vector[2::4]` reads every fourth number from number 2 on, and `vector[2::4] = other` writes "
    "them.",
    "Which numbers of the kept vector become 0, and when: before the all_reduce, or in the "
    "callback?",
]


def compress_gradients(state: dict, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """A future of the averaged gradient, of which a quarter is sent, and the rest 0 and kept."""
    ### BEGIN SOLUTION
    gradient = bucket.buffer()
    kept, step = state.get(bucket.index(), (torch.zeros_like(gradient), 0))
    kept = kept + gradient
    part = slice(step % 4, None, 4)
    sent = kept[part] / dist.get_world_size()
    kept[part] = 0
    state[bucket.index()] = (kept, step + 1)

    def spread(future: Future) -> torch.Tensor:
        mean = torch.zeros_like(gradient)
        mean[part] = future.value()[0]
        return mean

    return dist.all_reduce(sent, async_op=True).get_future().then(spread)
    ### END SOLUTION


SIZES, STEPS = (9, 9, 6), 6  # a bucket each
ALL_BYTES = 4 * sum(len(range(step % 4, size, 4)) for step in range(STEPS) for size in SIZES)
NETWORK = "1 Gbit/s, 0.3 ms"
OVERLAPPING, SERIAL = "in the background", "one after the other"


def gradient_of(call: int, step: int, bucket: int, rank: int) -> Tensor:
    """A rank's gradient: eighths of both signs, others in each call, step, bucket and rank."""
    seed = 1000 * call + 100 * step + 10 * bucket + rank
    random = torch.Generator().manual_seed(seed)
    return torch.randint(-80, 80, (SIZES[bucket],), generator=random) / 8 + 0.0625


class Model(nn.Module):
    """Each parameter is a bucket, and its gradient is what `gradient_of` says."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in SIZES)

    def forward(self, gradients: list[Tensor]) -> Tensor:
        return sum(
            (parameter * gradient).sum()
            for parameter, gradient in zip(self.layers, gradients, strict=True)
        )


class Training(NamedTuple):
    """A model in DDP, whose hook calls the last of `hooks`; `returned` are the kinds of results."""

    ddp: DistributedDataParallel
    hooks: list[Callable]
    returned: list[str]


def training() -> Training:
    """DDP after two steps: as the second one begins, it makes its buckets anew."""
    ddp = DistributedDataParallel(Model(), bucket_cap_mb=1e-6)
    hooks: list[Callable] = [lambda state, bucket: allreduce_hook(None, bucket)]
    returned: list[str] = []

    def hook(state, bucket):  # DDP wants no annotations but its own
        size = len(bucket.buffer())
        result = hooks[-1](state, bucket)
        if not isinstance(result, torch._C.Future):  # `then` makes one of this class
            returned.append(type(result).__name__)
            return completed(torch.zeros(size))

        def to_vector(future: Future) -> Tensor:
            value = future.value()
            fits = isinstance(value, Tensor) and value.numel() == size
            returned.append("future" if fits else f"future of {kind(value)}")
            return value if fits else torch.zeros(size)

        return result.then(to_vector)

    ddp.register_comm_hook({}, hook)
    for _ in range(2):
        ddp([torch.ones(size) for size in SIZES]).backward()
    return Training(ddp, hooks, returned)


def kind(value: object) -> str:
    """A value that DDP cannot take, in words."""
    return f"{value.numel()} numbers" if isinstance(value, Tensor) else type(value).__name__


def completed(value: Tensor) -> Future:
    """A future that is over."""
    future: Future = Future()
    future.set_result(value)
    return future


class Result(NamedTuple):
    """Kinds of results, the gradients of each step, and whether calls overlap in some step."""

    returned: list[str]
    gradients: dict[str, Tensor]
    overlap: bool


def train_steps(function: Callable, setup: Training, call: int) -> Result:
    """Make STEPS steps in which the hook calls the function."""
    ddp, hooks, returned = setup
    hooks.append(function)
    returned.clear()
    gradients, records, overlap = {}, record_completed_calls(), False
    for step in range(STEPS):
        ddp.zero_grad()
        records.clear()
        own = [gradient_of(call, step, bucket, dist.get_rank()) for bucket in range(len(SIZES))]
        ddp(own).backward()
        for bucket, parameter in enumerate(ddp.module.layers):
            gradients[f"layers.{bucket} in step {step + 1}"] = parameter.grad.clone()
        calls = sorted((record.entry_time, record.end) for record in records)
        overlap |= any(start < end for (_, end), (start, _) in pairwise(calls)) or not calls
    return Result(sorted({*returned}), gradients, overlap)


def describe_overlap(obs: Observation) -> str:
    """Whether some call was on its way when the next one started, on any rank."""
    alone = obs.size == 1
    return (
        OVERLAPPING
        if alone or any(rank_obs.actual.overlap for rank_obs in obs.all_ranks)
        else SERIAL
    )


CHECK = DistributedCheck(
    cases=lambda size: [0, 1],
    call_text=f"register_comm_hook(state, compress_gradients), then {STEPS} steps",
    make_args=lambda case, rank: (training(), case),
    caller=train_steps,
    observe=lambda returned, *arguments: returned,
    network=NETWORK,
    compare={
        "returned": Comparison(
            "What is the value of the future that you return?",
            ["future"],
            actual="the hook returned {value} {where}",
            required="a future of a vector as long as the bucket",
        ),
        "operations": calls_only(
            "all_reduce",
            required="all_reduce, and nothing else",
            hint="All ranks send the same places. Which collective adds them up?",
        ),
        "gradients": Comparison(
            "Write down one number of one bucket over five steps: when is it sent, what "
            "is kept of it then, and by what is it divided?"
        ),
        "bytes": bytes_sent(
            ALL_BYTES,
            "gradients",
            hint="Which numbers does your all_reduce take besides those that have their turn?",
            required="{expected} bytes: a quarter of each bucket, rounded up, in float32",
        ),
        "overlap": Comparison(
            "Which of your lines waits until the sum is there?",
            OVERLAPPING,
            select=describe_overlap,
            actual="the right gradients, but each bucket waits for the one before",
            required="a hook that returns at once, while its all_reduce is under way",
            timing_dependent=True,
        ),
    },
    mistakes={
        "What happens to the numbers that were not sent?": edit(
            "kept = kept + gradient", "kept = gradient.clone()"
        ),
        "A number that was sent comes again in later steps. What is kept of it?": edit(
            "    kept[part] = 0\n", ""
        ),
        "The remainder is in this twice. Where is it added?": edit(
            "kept = kept + gradient", "kept = 2 * kept + gradient"
        ),
        "Only part of the remainder is there. Which part of it is lost in each step?": edit(
            "kept = kept + gradient", "kept = kept / dist.get_world_size() + gradient"
        ),
        "This is the sum over the ranks. By what is it divided?": edit(
            " / dist.get_world_size()", ".clone()"
        ),
        "Is what you send a vector of its own, or a view with gaps? gloo sums what lies side by "
        "side in memory.": edit(
            "kept[part] / dist.get_world_size()", "(kept / dist.get_world_size())[part]"
        ),
        "It is divided once too often. Where are the two divisions?": edit(
            "future.value()[0]", "future.value()[0] / dist.get_world_size()"
        ),
        "Each bucket has its own steps. Whose calls does your counter count?": edit(
            "    part = slice(step",
            "    step = state.get('calls', 0)\n    part = slice(step",
            "    state[bucket.index()]",
            "    state['calls'] = step + 1\n    state[bucket.index()]",
        ),
        "The same numbers are sent in each step. When do the others have their turn?": edit(
            "step % 4", "0"
        ),
        "It begins with another quarter. Which one is the first?": edit(
            "step % 4", "(step + 1) % 4"
        ),
        "Places that were not sent hold this rank's own numbers. What do the other ranks have "
        "there?": [
            edit("mean = torch.zeros_like(gradient)", "mean = gradient.clone()"),
            edit("mean = torch.zeros_like(gradient)", "mean = kept.clone()"),
        ],
        "Is the remainder kept, or the bucket's memory, into which the next gradient is written?": (
            edit(
                "    kept = kept + gradient",
                "    gradient += kept\n    kept = gradient",
                "mean = torch.zeros_like(gradient)",
                "mean = torch.zeros(len(gradient))",
            )
        ),
        "A remainder belongs to one bucket. Which buckets share yours?": edit(
            "state.get(bucket.index(), (torch.zeros_like(gradient), 0))",
            "state.get(bucket.index(), (torch.zeros_like(gradient), 0))\n"
            "    kept = state.get(len(gradient), torch.zeros_like(gradient))",
            "    state[bucket.index()]",
            "    state[len(gradient)] = kept\n    state[bucket.index()]",
        ),
        "The whole bucket travels. Which numbers does the all_reduce need?": edit(
            "    sent = kept[part] / dist.get_world_size()\n    kept[part] = 0",
            "    sent = torch.zeros_like(kept)\n"
            "    sent[part] = kept[part] / dist.get_world_size()\n    kept[part] = 0",
            "future.value()[0]",
            "future.value()[0][part]",
        ),
        "Each bucket waits for its own sum. Which call waits in your hook?": edit(
            "    return dist.all_reduce(sent, async_op=True).get_future().then(spread)",
            "    future = dist.all_reduce(sent, async_op=True).get_future()\n    "
            "future.wait()\n    return future.then(spread)",
        ),
        "Does every way through your function end with a return?": Pattern(
            lambda obs: "NoneType" in obs.value, "returned"
        ),
        "The hook ends before the mean is there. What does it return in its place, and "
        "who turns the sum into a vector for DDP?": Pattern(
            lambda obs: "Tensor" in obs.value or "Work" in obs.value, "returned"
        ),
        "The value of all_reduce's own future is a list with the tensor. What does your "
        "callback return?": Pattern(lambda obs: "future of list" in obs.value, "returned"),
        "How long is the vector that your callback returns, and how long the bucket?": Pattern(
            lambda obs: any("numbers" in result for result in obs.value), "returned"
        ),
    },
    errors={
        "must match the size": "A remainder belongs to one bucket, and buckets differ in length. "
        "Which remainder do you add?",
    },
    on_pass=f"the right gradients in {STEPS} steps of three buckets, with a quarter of the bytes, "
    "at 1 to 4 ranks",
)
