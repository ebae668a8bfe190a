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

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ddp_workbook.exercises import Alone, Look, Seen, When, in_words
from ddp_workbook.exercises.judging.same import kind

MINUTES = 10
HINTS = [
    "Write down the places 0 to 11 of a stream, and under each its rank, for 2 ranks. Then look at "
    "rank 0's places alone: which of them are worker 0's, if it has 2 workers?",
    "Which rank gets place 7 of the stream, with 3 ranks? How many samples has this rank got "
    "before it? What does that number say about the worker?",
    "A rank without workers is like a rank with one. Which id would that worker have? Number the "
    "places of the stream as you read, and yield what is yours.",
]


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


class Case(NamedTuple):
    """A stream of n samples, and how many workers each rank has; `real` ones of a DataLoader."""

    n: int
    workers: tuple[int, ...]
    real: bool = False

    @property
    def samples(self) -> list[int]:
        """Values that are not the places: a sample's value must not matter. One is 0, one None."""
        return [None if place == 7 and self.n == 8 else 10 * place for place in range(self.n)]

    @property
    def processes(self) -> list[tuple[int, Worker | None]]:
        """The processes that read: (rank, worker). With a real loader only the rank is seen."""
        return [
            (rank, Worker(one, count) if count else None)
            for rank, count in enumerate(self.workers)
            for one in range(1 if self.real else count or 1)
        ]

    @property
    def in_words(self) -> str:
        """The call."""
        ranks = f"{len(self.workers)} rank{'s' * (len(self.workers) > 1)}"
        how = "a DataLoader with" if self.real else "called for"
        return (
            f"iterable_shard(stream of {self.n}, rank, {len(self.workers)}, worker)\n"
            f"{how} {ranks} with num_workers = {', '.join(map(str, self.workers))}"
        )


CASES = [
    Case(25, (3, 1, 2)),
    Case(23, (2, 2)),
    Case(9, (0, 0)),
    Case(11, (0, 2)),
    Case(3, (2, 3)),
    Case(8, (4,)),
    Case(0, (1, 2)),
    Case(5, (0,)),
    Case(11, (2, 2), real=True),
]


class Stream:
    """An iterator that counts what was taken from it."""

    def __init__(self, samples: list[int]):
        self.left, self.taken = iter(samples), 0

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> int:
        sample = next(self.left)
        self.taken += 1
        return sample


class Data(IterableDataset):
    """The stream as a data set."""

    def __init__(self, function: Callable, samples: list[int], rank: int, world_size: int):
        self.ask = lambda worker: function(Stream(samples), rank, world_size, worker)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ask(get_worker_info()))


def read(function: Callable, case: Case, rank: int, worker: Worker | None) -> dict:
    """In a process: the samples that come, and how many were taken when the first one came."""
    world_size, stream = len(case.workers), Stream(case.samples)
    if case.real:
        data = Data(function, case.samples, rank, world_size)
        loader = DataLoader(data, batch_size=None, num_workers=worker.num_workers)
        return {"samples": list(loader), "taken": 0}
    returned = function(stream, rank, world_size, worker)
    if not hasattr(returned, "__iter__"):
        return {"samples": returned, "taken": 0}
    samples = iter(returned)
    first = list(islice(samples, 1))
    return {"taken": stream.taken if first else 0, "samples": first + list(samples)}


def mine(places: Callable[..., Iterator[int]]) -> Callable[[Case, int], list[int]]:
    """What a process gets, if `places(n, rank, world_size, worker, workers)` are taken.

    A real loader takes from its workers in turn.
    """

    def samples(case: Case, process: int) -> list[int]:
        rank, worker = case.processes[process]
        one, count = worker or (0, 1)
        every = range(count) if case.real else [one]
        found = [[*places(case.n, rank, len(case.workers), w, count)] for w in every]
        turns = range(max(map(len, found)))
        return [case.samples[own[turn]] for turn in turns for own in found if turn < len(own)]

    return samples


def right(n: int, rank: int, world_size: int, worker: int, workers: int) -> range:
    """The places of a process."""
    return range(rank + world_size * worker, n, world_size * workers)


def same_block(n: int, rank: int, world_size: int, worker: int, workers: int) -> range:
    """A block of the rank's places for each worker."""
    own = range(rank, n, world_size)
    each = -(-len(own) // workers)
    return own[worker * each : (worker + 1) * each]


def whole_blocks(n: int, rank: int, world_size: int, worker: int, workers: int) -> range:
    """A block of the stream for each rank, and a block of that for each worker."""
    each = -(-n // world_size)
    own = range(n)[rank * each : (rank + 1) * each]
    part = -(-len(own) // workers)
    return own[worker * part : (worker + 1) * part]


def without_rest(n: int, rank: int, world_size: int, worker: int, workers: int) -> range:
    """The right places, without the rest that does not divide."""
    parts = world_size * workers
    return right(n // parts * parts, rank, world_size, worker, workers)


def by_process(seen: Seen, lists: list) -> str:
    """A line for each process."""
    names = [
        f"rank {rank}" + (f", worker {worker.id}" if worker and not seen.case.real else "")
        for rank, worker in seen.case.processes
    ]
    return "\n".join(f"{n}: {in_words(own)}" for n, own in zip(names, lists, strict=False))


def only_without_workers(way: Callable[[Case], list[int]]) -> Callable[[Case, int], list[int]]:
    """A mistake that only a rank without workers shows."""

    def samples(case: Case, process: int) -> list[int]:
        return way(case) if case.processes[process][1] is None else mine(right)(case, process)

    return samples


def type_of(value: object) -> str:
    """What a reader's function returned, unless it is something to iterate over."""
    return "samples" if isinstance(value, list) else kind(value)


def taken_too_early(seen: Seen) -> bool:
    """Whether more was taken than it takes to reach the first sample."""
    rank, worker = seen.case.processes[seen.rank]
    one, _ = worker or (0, 1)
    return seen.came["taken"] > rank + len(seen.case.workers) * one + 1


WHOSE = Look(
    of=lambda seen: seen.came["samples"],
    right=mine(right),
    mistakes={
        "Worker 0 takes all samples of its rank. Which line treats id 0 as no worker?": mine(
            lambda n, rank, world_size, worker, workers: (
                right(n, rank, world_size, worker, workers)
                if worker
                else range(rank, n, world_size)
            )
        ),
        "Each sample comes once in every worker of its rank. Who else reads in this rank?": mine(
            lambda n, rank, world_size, worker, workers: range(rank, n, world_size)
        ),
        "You choose the worker by a place in the whole stream. Which number counts only the "
        "samples of this rank?": mine(
            lambda n, rank, world_size, worker, workers: [
                place for place in range(rank, n, world_size) if place % workers == worker
            ]
        ),
        "Every rank gets the whole stream. Where is `rank` used?": mine(
            lambda n, rank, world_size, worker, workers: range(worker, n, workers)
        ),
        "Every process gets the whole stream. Which samples are its own?": mine(
            lambda n, *_: range(n)
        ),
        "This is right only if all ranks have equally many workers. Which rank gets the second "
        "sample of the stream?": mine(
            lambda n, rank, world_size, worker, workers: range(
                rank * workers + worker, n, world_size * workers
            )
        ),
        "Samples at the end are left out, so that all get equally many. Do they have to?": mine(
            without_rest
        ),
        "Each worker has a block of its rank's samples. How long is a block, if the stream never "
        "ends?": mine(same_block),
        "Each rank has a block of the stream. How long is a block, if the stream never ends?": mine(
            whole_blocks
        ),
        "Without workers, the rank gets the whole stream. Who else reads it?": (
            only_without_workers(lambda case: case.samples)
        ),
        "Without workers, nobody reads. What is `worker` in the rank itself?": (
            only_without_workers(lambda case: [])
        ),
        "A sample may be None. What else shows that the stream has ended?": mine(
            lambda n, *of: [place for place in right(n, *of) if n != 8 or place < 7]
        ),
        "Sample 0 is lost. Which of your lines treats 0 as nothing?": mine(
            lambda *of: [place for place in right(*of) if place]
        ),
        "These are places of the stream. Which samples are there?": (
            lambda case, process: [case.samples.index(one) for one in mine(right)(case, process)]
        ),
        "Ids begin at 0: the first sample is rank 0's and worker 0's. Whose is it here?": mine(
            lambda n, *of: [place + 1 for place in right(n - 1, *of)]
        ),
        "Samples are dealt by their values. The place in the stream decides, not the value.": (
            mine(
                lambda n, rank, world_size, worker, workers: [
                    place
                    for place in range(n)
                    if 10 * place % (world_size * workers) == rank + world_size * worker
                ]
            )
        ),
        "These are not the samples themselves. What exactly does your function yield?": When(
            lambda seen: any(one not in seen.case.samples for one in seen.value)
        ),
    },
    otherwise="Which samples come more than once, and which nowhere? Write a rank and a worker "
    "under each place of the stream.",
    came=lambda seen: by_process(seen, [one.value for one in seen.everyone]),
    required=lambda seen: by_process(seen, [one.right for one in seen.everyone]),
)
CHECK = Alone(
    cases=CASES,
    times=lambda case: len(case.processes),
    given=lambda case, process: (case, *case.processes[process]),
    caller=read,
    called=lambda case: case.in_words,
    looks=[
        Look(
            of=lambda seen: type_of(seen.came["samples"]),
            right="samples",
            mistakes={
                "Does the function yield its samples, or return something to iterate over, on "
                "every path?": "None"
            },
            otherwise="The caller iterates over what your function gives. What is it here?",
            came=lambda seen: f"{in_words(seen.came['samples'])}, {seen.value}",
            required="an iterator over samples",
        ),
        WHOSE,
        Look(
            of=taken_too_early,
            right=False,
            otherwise="What does the first sample wait for? The stream may never end.",
            came=lambda seen: (
                f"on rank {seen.case.processes[seen.rank][0]}, "
                f"{seen.came['taken']} samples were taken before the first one came"
            ),
            required="a sample comes when it has been read",
        ),
    ],
    errors={
        "'NoneType' object has no attribute": "With num_workers=0 the rank itself reads, and "
        "`worker` is None. How many read then?",
        "has no len()": "A stream has no length. What can you know before you have read it?",
        "not subscriptable": "A stream can be read from the beginning only, one after the other.",
        "raised StopIteration": "next raises StopIteration at the end of the stream, which is an "
        "error inside a generator. What could end your loop?",
        "process group": "There is no process group. Which arguments give rank and world size?",
    },
    proves="at 1 to 3 ranks with 0 to 4 workers, also of a DataLoader, each sample comes once",
)
