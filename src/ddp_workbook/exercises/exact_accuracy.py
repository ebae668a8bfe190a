"""Compute the accuracy over a whole data set, also when the ranks cannot share it equally.

All ranks call the function, on the CPU, with the same model and the same data set of at least one
sample. dataset[i] is (features, label). The model turns a batch of features into scores
[rows, classes]; its guess is the class with the highest score.

- Every rank returns the number of right guesses divided by the number of samples, to the last digit
  as one process would compute it. Each sample counts once: a DistributedSampler would repeat some.
- The ranks share the work. Each sample goes through the model on some rank, and no rank takes more
  than len(dataset) / world_size samples, rounded up. There may be fewer samples than ranks.
- The model gets at most `batch_size` rows at once. It guesses in evaluation mode and without an
  autograd graph. Afterwards each of its modules is again in training or evaluation mode, as before
  the call.
- A call makes one collective.
"""

from collections.abc import Callable
from math import nan
from typing import ClassVar, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from ddp_workbook.exercises import Look, OnRanks, Seen, When, in_words
from ddp_workbook.exercises.judging.same import is_number, same

MINUTES = 15
HINTS = [
    "Which samples belong to this rank if nothing is added to make the shares equal? And from "
    "which whole numbers, one from each rank, can the accuracy be computed?",
    "A Subset holds chosen samples of the data set, perhaps none, and a loader can iterate over "
    "it. Each rank counts, and counts can be added up.",
    "Only the counts of right guesses have to be sent. What divides them at the end, and does each "
    "rank know that number already? model.train(True) changes every module inside the model: "
    "which of them were in evaluation mode before?",
]


def exact_accuracy(model: nn.Module, dataset: Dataset, batch_size: int) -> float:
    """Share of the samples in `dataset` that `model` guesses right, `batch_size` at a time."""
    ### BEGIN SOLUTION
    modes = {module: module.training for module in model.modules()}  # a part may be frozen
    mine = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    right = torch.tensor(0)
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(mine, batch_size):  # none where a rank has no samples
            right += (model(features).argmax(dim=1) == labels).sum()
    for module, mode in modes.items():
        module.training = mode
    dist.all_reduce(right)  # whole numbers: their sum is exact
    return right.item() / len(dataset)
    ### END SOLUTION


class Case(NamedTuple):
    """A data set of n samples, and the samples that the model guesses right."""

    n: int
    batch_size: int
    mode: str
    right: set[int]


def cases(size: int) -> list[Case]:
    """One sample more than a multiple of the ranks, one less, and fewer samples than ranks."""
    wrong = {1, 3, 5, 9, 10, 13}
    more, less, few = {1: 5, 2: 9, 3: 19, 4: 21}[size], 5 * size - 1, max(size - 1, 1)
    return [
        Case(more, 2, "training", {*range(more)} - wrong),  # whose fractions have no exact sum
        Case(less, 3, "evaluation", {*range(less)} & wrong),
        Case(few, 2, "training", {*range(few)} - wrong),
    ]


class Model(nn.Module):
    """Guesses what features say, and notes what goes through it; a part of it is frozen."""

    batches: ClassVar[list[dict]] = []

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.dropout = nn.Linear(3, 2), nn.Dropout(1.0)
        self.frozen = nn.Sequential(nn.Identity())
        self.scores.weight.data, self.scores.bias.data = torch.eye(3)[1:], torch.zeros(2)

    def forward(self, features: Tensor) -> Tensor:
        """Scores [rows, 2]."""
        scores = self.dropout(self.scores(features))
        note = {"rows": features[:, 0].int().tolist(), "graph": scores.requires_grad}
        Model.batches.append(note | {"training": self.dropout.training})
        return self.frozen(scores)


def arguments(case: Case) -> tuple[Model, TensorDataset, int]:
    """Those of a call. Sample i has i among its features."""
    model = Model().train(case.mode == "training")
    model.frozen.eval()
    guesses = torch.arange(case.n) % 3 % 2
    labels = torch.tensor([g if i in case.right else 1 - g for i, g in enumerate(guesses.tolist())])
    features = torch.stack([torch.arange(case.n), 1 - guesses, guesses], dim=1).float()
    Model.batches = []
    return model, TensorDataset(features, labels), case.batch_size


def observe(returned: object, model: Model, *_: object) -> dict:
    """What came back, what went through the model, and how it is afterwards."""
    return {"number": returned, "batches": Model.batches, "state": state(model)}


def state(model: Model) -> dict[str, bool]:
    """What a call must leave as it is."""
    modes = {f"{n or 'model'}.training": part.training for n, part in model.named_modules()}
    return modes | {f"{n}.requires_grad": p.requires_grad for n, p in model.named_parameters()}


def state_before(case: Case) -> dict[str, bool]:
    """The state in which the function gets the model."""
    return state(arguments(case)[0])


def taken(seen: Seen) -> list[int]:
    """The samples that went through the model on this rank."""
    return [sample for batch in seen.came["batches"] for sample in batch["rows"]]


def most(case: Case, size: int) -> int:
    """How many samples a rank may take."""
    return -(-case.n // size)


def missing(seen: Seen) -> list[int]:
    """Samples that no rank has taken."""
    return sorted(set(range(seen.case.n)) - {i for one in seen.everyone for i in taken(one)})


def work(seen: Seen) -> str:
    """Who took what, in words."""
    ranks = "; ".join(f"rank {one.rank} took {in_words(taken(one))}" for one in seen.everyone)
    return f"{ranks}\non no rank: {in_words(missing(seen)) if missing(seen) else 'none'}"


def hits(seen: Seen) -> list[list[list[bool]]]:
    """Of each rank's batches, which guesses are right."""
    return [
        [[i in one.case.right for i in b["rows"]] for b in one.came["batches"] if b["rows"]]
        for one in seen.everyone
    ]


def rows(seen: Seen) -> list[int]:
    """How many samples each rank took."""
    return [len(taken(one)) for one in seen.everyone]


def counts(seen: Seen) -> list[int]:
    """How many of them it guessed right."""
    return [sum(map(sum, own)) for own in hits(seen)]


def parts(seen: Seen) -> list[float]:
    """The accuracy of each rank's own samples, 0 if it has none."""
    return [count / (own or 1) for count, own in zip(counts(seen), rows(seen), strict=True)]


def of_batches(seen: Seen) -> list[float]:
    """Means over batches, of a rank, of the ranks, of all batches, and weighted."""
    each = [[sum(batch) / len(batch) for batch in own] for own in hits(seen)]
    means = [sum(own) / (len(own) or 1) for own in each]
    weighted = sum(m * own for m, own in zip(means, rows(seen), strict=True))
    every = sum(map(sum, each)) / sum(map(len, each))
    n = seen.case.n
    return [means[seen.rank], sum(means) / seen.size, every, weighted / n, round(weighted) / n]


def gives(*ways: Callable[[Seen], float | bool]) -> When:
    """Holds where one of these ways gives the number; one that gives False does not."""

    def holds(seen: Seen) -> bool:
        numbers = [way(seen) for way in ways]
        return any(number is not False and same(seen.value, float(number)) for number in numbers)

    return When(holds)


def last_batches(seen: Seen) -> float:
    """The share of the right guesses in the last batch of each rank."""
    return sum(sum(own[-1]) for own in hits(seen) if own) / seen.case.n


MODE = Look(
    of=lambda seen: any(batch["training"] for batch in seen.came["batches"]),
    right=False,
    otherwise="Dropout and similar layers are active. What turns them off?",
    came="the model guessed in training mode {where}",
    required="the model guesses in evaluation mode",
)
WORK = Look(
    of=lambda seen: len(taken(seen)) <= most(seen.case, seen.size) and not missing(seen),
    right=True,
    mistakes={
        "One rank works, and the others wait. What could they do?": When(
            lambda seen: sum(map(bool, rows(seen))) == 1 < min(seen.case.n, seen.size)
        ),
        "A rank that guesses everything saves no time. Which part is its own?": When(
            lambda seen: len(taken(seen)) == seen.case.n > most(seen.case, seen.size)
        ),
        "More than its share. Which samples are left to the others?": When(
            lambda seen: len(taken(seen)) > most(seen.case, seen.size)
        ),
    },
    otherwise="Left out. Does a sampler or a loader drop what does not divide?",
    came=work,
    required=lambda seen: (
        f"at most {most(seen.case, seen.size)} of {seen.case.n} on a rank, and each on some rank"
    ),
)
NUMBER = Look(
    of=lambda seen: seen.came["number"],
    right=lambda case: len(case.right) / case.n,
    mistakes={
        "After reduce or gather one rank alone has the result. How do the others get it?": When(
            lambda seen: {"reduce", "gather"} & set(seen.ops) and seen.rank
        ),
        "Right in the first seven digits only: a quotient of integer tensors is float32. What "
        "does Python make of two ints?": When(
            lambda seen: seen.value == torch.tensor(seen.right).item()
        ),
        "Right except for the last digit: fractions are rounded, and so is their sum. What could "
        "be added up instead?": gives(lambda seen: seen.right),
        "The doubles count like other samples.": gives(
            lambda seen: sum(rows(seen)) > seen.case.n and sum(counts(seen)) / sum(rows(seen))
        ),
        "The right guesses of doubles count, too.": gives(
            lambda seen: sum(rows(seen)) > seen.case.n and sum(counts(seen)) / seen.case.n
        ),
        "These are right guesses. What makes them a share?": gives(
            lambda seen: len(seen.case.right), lambda seen: sum(counts(seen))
        ),
        "This is a percentage. The task asks for a number from 0 to 1.": gives(
            lambda seen: 100 * seen.right
        ),
        "A rank without samples has no accuracy. Which of its numbers exists anyway?": (
            gives(lambda seen: nan)
        ),
        "Are these the right guesses in the last batch of each rank only?": gives(last_batches),
        "No guess is right? Which line rounds down, or starts to count again?": (
            gives(lambda seen: 0)
        ),
        "This is rank 0's accuracy, on every rank. Where are the others?": gives(
            lambda seen: (
                seen.size > 1
                and all(same(one.value, seen.value) for one in seen.everyone)
                and parts(seen)[0]
            )
        ),
        "This is the accuracy of this rank's own samples. How does it learn about the others?": (
            gives(lambda seen: parts(seen)[seen.rank])
        ),
        "These are this rank's right guesses, divided by all samples. Where are the others'?": (
            gives(lambda seen: counts(seen)[seen.rank] / seen.case.n)
        ),
        "This is the mean of the ranks' accuracies. Has each rank as many samples?": gives(
            lambda seen: sum(parts(seen)) / seen.size
        ),
        "This is a mean of batches. Has the last batch as many rows as the others?": When(
            lambda seen: any(same(seen.value, number) for number in of_batches(seen))
        ),
        "It was divided by the number of ranks, too.": gives(lambda seen: seen.right / seen.size),
    },
    otherwise="Which samples are in this number, how often does each count, and which guess is "
    "compared with its label?",
    came=lambda seen: f"{seen.value!r} on rank {seen.rank}",
    required=lambda seen: f"{seen.right!r} on every rank, {len(seen.case.right)} / {seen.case.n}",
    same=lambda came, right: is_number(came) and float(came) == right,
)
MEMORY = [
    Look(
        of=lambda seen: any(batch["graph"] for batch in seen.came["batches"]),
        right=False,
        otherwise="What is kept in memory for a backward that nobody calls?",
        came="scores with a graph {where}",
        required="scores without a graph",
    ),
    Look(
        of=lambda seen: all(len(b["rows"]) <= seen.case.batch_size for b in seen.came["batches"]),
        right=True,
        otherwise="The caller's memory holds no more rows. Which line makes the batches?",
        came=lambda seen: f"batches of {max(len(b['rows']) for b in seen.came['batches'])} rows",
        required=lambda seen: f"at most {seen.case.batch_size} rows at once",
    ),
]
AFTERWARDS = Look(
    of=lambda seen: seen.came["state"],
    right=state_before,
    mistakes={
        "The model is in training mode afterwards, whatever it was before. Who uses it next?": (
            lambda case: dict.fromkeys(state_before(case), True)
        ),
        "A part of the model was in evaluation mode. What does model.train do to its parts?": (
            lambda case: {
                name: was or (case.mode == "training") for name, was in state_before(case).items()
            }
        ),
        "The model is left in evaluation mode. Which mode was it in before?": lambda case: {
            name: was and not name.endswith("training") for name, was in state_before(case).items()
        },
    },
    otherwise="The caller uses this model again. Which line restores what was changed?",
    came="{part} is {value} afterwards",
    required="{right}, as before the call",
)
CHECK = OnRanks(
    cases=cases,
    given=arguments,
    observe=observe,
    called=lambda case: (
        f"exact_accuracy(model in {case.mode} mode, a part of it in evaluation mode, dataset of "
        f"{case.n}, batch_size={case.batch_size}); right guesses: samples "
        f"{in_words(sorted(case.right))}"
    ),
    looks=[MODE, WORK, NUMBER, *MEMORY, AFTERWARDS],
    most=1,
    too_much="Which numbers have to be sent, and which does each rank know?",
    errors={
        "positive integer value": "batch_size can be smaller than the world size. How many rows "
        "may each rank's model get at once?",
        "by zero": "A rank may have no samples. Which line divides by a rank's own number of them?",
        "num_samples=0": "A rank may have no samples. Does the loader have to shuffle here?",
        "non-empty": "A rank may have no samples. What does it concatenate then?",
        "out of bounds for dimension 0": "A rank asks for a sample after the last one. "
        "Do all ranks have equally many?",
        "can't be cast": "A fraction does not fit into a tensor of whole numbers. Do you add up, "
        "or take a mean?",
        "Invalid function argument": "A collective takes a tensor. Which line makes one of it?",
    },
    proves="each of 1 to 21 samples counted once, the work shared, one collective, at 1 to 4 ranks",
)
