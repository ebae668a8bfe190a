"""Yield the samples of one worker process from a stream that all ranks and workers read.

Every process that reads an IterableDataset gets the whole stream, and must skip what belongs to
others. The data set's `__iter__` would return
`iterable_shard(stream, rank, world_size, get_worker_info())`. You need no process group.

- `worker` is None if the rank itself reads, as with num_workers=0. In a worker process, `worker.id`
  is its number, from 0, and `worker.num_workers` says how many workers this rank has. Ranks may
  have different numbers of workers.
- The stream is dealt to the ranks like cards: the first sample to rank 0, the second to rank 1, and
  so on. A rank's samples are dealt to its workers in the same way, the first to worker 0.
- Each sample comes exactly once, in one process. Nothing is added or left out to make the shares
  equal.
- The stream has no length, can be read only once, and may never end. Yield a sample as soon as you
  have read it; do not collect samples first.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from ddp_workbook.judging import (
    Comparison,
    Observation,
    Pattern,
    SingleProcessCheck,
    body,
    edit,
    in_words,
)
from ddp_workbook.judging.equality import kind

MINUTES = 10
HINTS = [
    "Write down the places 0 to 11 of a stream, and under each its rank, for 2 ranks. Then look at "
    "rank 0's places alone: which of them are worker 0's, if it has 2 workers?",
    "Which rank gets place 7 of the stream, with 3 ranks? How many samples has this rank got "
    "before it? What does that number say about the worker?",
    "A rank without workers is like a rank with one. Which id would that worker have? Number the "
    "places of the stream as you read, and yield what is yours.",
]
MAX_SAMPLES = 50  # samples that are read of a process: an attempt may never end


def iterable_shard(stream: Iterator[Any], rank: int, world_size: int, worker: Any) -> Iterator[Any]:
    """This process's samples of `stream`, in its order; `worker` is from get_worker_info()."""
    ### BEGIN SOLUTION
    workers, mine = (1, 0) if worker is None else (worker.num_workers, worker.id)
    for place, sample in enumerate(stream):
        turn, owner = divmod(place, world_size)  # turn counts the samples of each rank
        if owner == rank and turn % workers == mine:
            yield sample
    ### END SOLUTION


class Worker(NamedTuple):
    """What get_worker_info() returns in a worker process, as far as it matters here."""

    id: int
    num_workers: int


class Source(NamedTuple):
    """A stream of n samples, and how many workers each rank has."""

    n: int
    workers: tuple[int, ...]

    @property
    def samples(self) -> list[int | None]:
        """Values that are not the places: a sample's value must not matter. One is 0, one None."""
        return [None if place == 7 and self.n == 8 else 10 * place for place in range(self.n)]

    @property
    def processes(self) -> list[tuple[int, Worker | None]]:
        """The processes that read: (rank, worker)."""
        return [
            (rank, Worker(number, count) if count else None)
            for rank, count in enumerate(self.workers)
            for number in range(count or 1)
        ]


class Stream:
    """An iterator that counts what was taken from it."""

    def __init__(self, samples: list[int | None]):
        self.iterator, self.num_read = iter(samples), 0

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> int | None:
        sample = next(self.iterator)
        self.num_read += 1
        return sample


def call_and_observe(function: Callable, stream: Stream, *process: Any) -> dict:
    """In a process: the samples that come, and how many were taken when the first one came."""
    returned = function(stream, *process)
    if not hasattr(returned, "__iter__"):
        return {"samples": returned, "num_read": 0}
    samples = islice(returned, MAX_SAMPLES)
    first = list(islice(samples, 1))
    return {"num_read": stream.num_read if first else 0, "samples": first + list(samples)}


def by_process(obs: Observation, lists: list) -> str:
    """A line for each process."""
    names = [
        f"rank {rank}" + (f", worker {worker.id}" if worker else "")
        for rank, worker in obs.case.processes
    ]
    return "\n".join(f"{name}: {in_words(own)}" for name, own in zip(names, lists, strict=False))


WHOSE, END = "owner == rank and turn % workers == mine", "        turn, owner"

CHECK = SingleProcessCheck(
    cases=[
        Source(25, (3, 1, 2)),
        Source(23, (2, 2)),
        Source(9, (0, 0)),
        Source(11, (0, 2)),
        Source(3, (2, 3)),
        Source(8, (4,)),
        Source(0, (1, 2)),
        Source(5, (0,)),
    ],
    times=lambda case: len(case.processes),
    make_args=lambda case, process: (
        Stream(case.samples),
        case.processes[process][0],
        len(case.workers),
        case.processes[process][1],
    ),
    caller=call_and_observe,
    call_text="{call}, stream of {case.n} samples, called in each process of each rank\n"
    "num_workers of the ranks: {case.workers}",
    compare={
        "kind": Comparison(
            "The caller iterates over what your function gives. What is it here, and on "
            "every path?",
            "a list",
            select=lambda obs: kind(obs.actual["samples"]),
            actual=lambda obs: f"{in_words(obs.actual['samples'])}, {obs.value}",
            required="an iterator over samples",
        ),
        "samples": Comparison(
            "Which samples come more than once, and which nowhere? Write a rank and a "
            "worker under each place of the stream.",
            actual=lambda obs: by_process(obs, [rank_obs.value for rank_obs in obs.all_ranks]),
            required=lambda obs: by_process(obs, [rank_obs.expected for rank_obs in obs.all_ranks]),
        ),
        "read": Comparison(
            "What does the first sample wait for? The stream may never end.",
            False,
            select=lambda obs: obs.actual["num_read"] > obs.solution.actual["num_read"],
            actual=lambda obs: (
                f"on rank {obs.case.processes[obs.rank][0]}, "
                f"{obs.actual['num_read']} samples were taken before the first one came"
            ),
            required="a sample comes when it has been read",
        ),
    },
    mistakes={
        "Worker 0 takes all samples of its rank. Which line treats id 0 as no worker?": edit(
            "worker is None", "worker is None or worker.id == 0"
        ),
        "Each sample comes once in every worker of its rank. Who else reads in this rank?": edit(
            " and turn % workers == mine", ""
        ),
        "You choose the worker by a place in the whole stream. Which number counts only the "
        "samples of this rank?": edit("turn %", "place %"),
        "Every rank gets the whole stream. Where is `rank` used?": [
            edit(WHOSE, "place % workers == mine"),
            edit(WHOSE, "True"),
        ],
        "Here all of rank 0's workers come before those of rank 1. Which rank gets the second "
        "sample of the stream?": edit(
            WHOSE, "place % (world_size * workers) == rank * workers + mine"
        ),
        "Each rank or worker has a block of neighbours. How long is a block, if the stream never "
        "ends?": [
            body(f"""
                workers, mine = (1, 0) if worker is None else (worker.num_workers, worker.id)
                samples = list(stream)
                each = -(-len(samples) // world_size)
                own = {own}
                part = -(-len(own) // workers)
                yield from own[mine * part : (mine + 1) * part]
            """)
            for own in ("samples[rank::world_size]", "samples[rank * each : (rank + 1) * each]")
        ],
        "Without workers, the rank itself reads. Which samples are its own then?": [
            edit("if owner", "if worker is None or owner"),
            edit("if owner", "if worker and owner"),
        ],
        "A sample may be 0 or None. Which line takes that for nothing, or for the end?": [
            edit(END, f"        if sample is None:\n            return\n{END}"),
            edit(END, f"        if sample == 0:\n            return\n{END}"),
            edit("if owner", "if sample and owner"),
        ],
        "Ids begin at 0: the first sample is rank 0's and worker 0's. Whose is it here?": [
            edit("enumerate(stream)", "enumerate(stream, start=1)"),
            edit("owner == rank", "owner == rank + 1"),
        ],
        "Samples are dealt by their values. The place in the stream decides, not the value.": (
            edit("divmod(place", "divmod(sample or 0")
        ),
        "These are not the samples themselves. What exactly does your function yield?": Pattern(
            lambda obs: any(sample not in obs.case.samples for sample in obs.value), "samples"
        ),
    },
    errors={
        "'NoneType' object has no attribute": "With num_workers=0 the rank itself reads, and "
        "`worker` is None. How many read then?",
        "has no len()": "A stream has no length. What can you know before you have read it?",
        "not subscriptable": "A stream can be read from the beginning only, one after the other.",
        "raised StopIteration": "next raises StopIteration at the end of the stream, which is an "
        "error inside a generator. What could end your loop?",
    },
    on_pass="at 1 to 3 ranks with 0 to 4 workers, each sample comes once, in one process",
)
