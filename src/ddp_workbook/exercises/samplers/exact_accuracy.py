"""Compute the accuracy over a whole data set, also when the ranks cannot share it equally.

All ranks call the function, on the CPU, with the same model and the same data set of at least one
sample. dataset[i] is (features, label). The model turns a batch of features into scores
[rows, classes]; its guess is the class with the highest score.

- Every rank returns the number of right guesses divided by the number of samples, to the last digit
  as one process would compute it. Each sample counts once: a DistributedSampler would repeat some.
- The ranks share the work: no rank takes more than len(dataset) / world_size samples, rounded up.
  There may be fewer samples than ranks.
- The model guesses in evaluation mode and without an autograd graph, at most `batch_size` rows at
  once. Afterwards it is again in training or evaluation mode, as before the call.
"""

from typing import ClassVar, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from ddp_workbook.judging import Comparison, DistributedCheck, Edit, Observation, edit, in_words

MINUTES = 15
HINTS = [
    "Which samples belong to this rank if nothing is added to make the shares equal? And from "
    "which whole numbers, one from each rank, can the accuracy be computed?",
    "A Subset holds chosen samples of the data set, perhaps none, and a loader can iterate over "
    "it. Each rank counts, and counts can be added up.",
    "Only the counts of right guesses have to be sent. What divides them at the end, and does each "
    "rank know that number already?",
]


def exact_accuracy(model: nn.Module, dataset: Dataset, batch_size: int) -> float:
    """Share of the samples in `dataset` that `model` guesses right, `batch_size` at a time."""
    ### BEGIN SOLUTION
    was_training = model.training
    model.eval()
    mine = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    right = torch.tensor(0)
    with torch.no_grad():
        for features, labels in DataLoader(mine, batch_size):  # none where a rank has no samples
            right += (model(features).argmax(dim=1) == labels).sum()
    model.train(was_training)
    dist.all_reduce(right)  # whole numbers: their sum is exact
    return right.item() / len(dataset)
    ### END SOLUTION


class Evaluation(NamedTuple):
    """A data set of n samples, and the samples that the model guesses right."""

    n: int
    batch_size: int
    mode: str
    right: set[int]


def cases(size: int) -> list[Evaluation]:
    """One sample more than a multiple of the ranks, one less, and fewer samples than ranks."""
    wrong = {1, 3, 5, 9, 10, 13}
    more, less, few = {1: 5, 2: 9, 3: 19, 4: 21}[size], 5 * size - 1, max(size - 1, 1)
    return [
        Evaluation(
            more, 2, "training", {*range(more)} - wrong
        ),  # whose fractions have no exact sum
        Evaluation(less, 3, "evaluation", {*range(less)} & wrong),
        Evaluation(few, 2, "training", {*range(few)} - wrong),
    ]


class Model(nn.Module):
    """Guesses what features say, one of three classes, and notes what goes through it."""

    batches: ClassVar[list[dict]] = []  # of this call, also those of a copy of the model

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.dropout = nn.Linear(4, 3, bias=False), nn.Dropout(1.0)
        self.scores.weight.data = torch.eye(4)[1:]

    def forward(self, features: Tensor) -> Tensor:
        """Scores [rows, 3]."""
        scores = self.dropout(self.scores(features))
        note = {"rows": features[:, 0].int().tolist(), "graph": scores.requires_grad}
        Model.batches.append(note | {"training": self.dropout.training})
        return scores


def make_args(case: Evaluation) -> tuple[Model, TensorDataset, int]:
    """The arguments of a call. Feature 0 of sample i is i; the others are the scores."""
    Model.batches = []
    samples = torch.arange(case.n)
    guesses = (samples + 1) % 3
    right = torch.tensor([i in case.right for i in range(case.n)])
    labels = torch.where(right, guesses, (guesses + 1 + samples % 2) % 3)
    scores = nn.functional.one_hot(guesses, 3) * 2 - 1
    features = torch.cat([samples[:, None], scores], dim=1).float()
    return Model().train(case.mode == "training"), TensorDataset(features, labels), case.batch_size


def observe(returned: object, model: Model, *_: object) -> dict:
    """What came back, what went through the model, and its mode afterwards."""
    return {
        "number": returned,
        "batches": Model.batches,
        "model.training afterwards": model.training,
    }


def samples_of(obs: Observation) -> list[int]:
    """The samples that went through the model on this rank."""
    return [sample for batch in obs.actual["batches"] for sample in batch["rows"]]


def sample_counts(obs: Observation) -> list[int]:
    """How many samples each rank took."""
    return [len(samples_of(rank_obs)) for rank_obs in obs.all_ranks]


def max_samples(obs: Observation) -> int:
    """How many samples a rank may take."""
    return -(-obs.case.n // obs.size)


def missing(obs: Observation) -> list[int]:
    """Samples that no rank has taken."""
    return sorted(
        set(range(obs.case.n)) - {i for rank_obs in obs.all_ranks for i in samples_of(rank_obs)}
    )


def describe_work(obs: Observation) -> str:
    """Who took what, in words."""
    ranks = "; ".join(
        f"rank {rank_obs.rank} took {in_words(samples_of(rank_obs))}" for rank_obs in obs.all_ranks
    )
    return f"{ranks}\non no rank: {in_words(missing(obs)) if missing(obs) else 'none'}"


def forward_problems(obs: Observation) -> dict[str, bool]:
    """Of the ways in which the model must not guess: whether it has."""
    batches = obs.actual["batches"]
    return {
        "in training mode": any(batch["training"] for batch in batches),
        "with an autograd graph": any(batch["graph"] for batch in batches),
        "too many rows at once": any(len(b["rows"]) > obs.case.batch_size for b in batches),
    }


PROBLEM_HINTS = {
    "in training mode": "Dropout and similar layers are active. What turns them off?",
    "with an autograd graph": "What is kept in memory for a backward that nobody calls?",
    "too many rows at once": "The caller's memory holds no more rows. Which line makes the "
    "batches?",
}


SHARE, SUM = "right.item() / len(dataset)", "dist.all_reduce(right)"
STRIDE = "range(dist.get_rank(), len(dataset), dist.get_world_size())"
SAMPLER = "list(torch.utils.data.DistributedSampler(dataset{}))"
OWN_SHARE = "right = right.double() / max(1, len(mine))"


def in_blocks(*changes: str) -> list[Edit]:
    """A mistake that depends on whose samples these are: dealt like cards, and cut into blocks."""
    block = "range(len(dataset))[each * dist.get_rank() :][:each]"
    share_size = "each = -(-len(dataset) // dist.get_world_size())\n    mine ="
    return [edit(*changes), edit("mine =", share_size, STRIDE, block) + edit(*changes)]


def with_sampler(*changes: str) -> list[Edit]:
    """A mistake with the samples of a DistributedSampler, which come in an order or in none."""
    return [edit(STRIDE, SAMPLER.format(s), *changes) for s in (", shuffle=False", "")]


CHECK = DistributedCheck(
    cases=cases,
    make_args=make_args,
    observe=observe,
    call_text="exact_accuracy(model in {case.mode} mode, dataset of {case.n}, "
    "batch_size={case.batch_size}); right guesses: samples {case.right}",
    compare={
        "guessing": Comparison(
            PROBLEM_HINTS,
            dict.fromkeys(PROBLEM_HINTS, False),
            select=forward_problems,
            actual="the model guessed {part}",
            required=lambda obs: (
                f"evaluation mode, no autograd graph, at most {obs.case.batch_size} rows at once"
            ),
        ),
        "work": Comparison(
            "Does a rank take more than its share, or does a sampler or a loader drop what does "
            "not divide?",
            True,
            select=lambda obs: max(sample_counts(obs)) <= max_samples(obs) and not missing(obs),
            actual=describe_work,
            required=lambda obs: (
                f"at most {max_samples(obs)} of {obs.case.n} on a rank, each on some rank"
            ),
        ),
        "number": Comparison(
            "Which samples are in this number, how often does each count, and which guess is "
            "compared with its label?",
            lambda case: len(case.right) / case.n,
            actual=lambda obs: f"{obs.value!r} on rank {obs.rank}",
            required=lambda obs: (
                f"{obs.expected!r} on every rank, {len(obs.case.right)} / {obs.case.n}"
            ),
        ),
        "last digits": Comparison(
            "Right except for the last digits: fractions are rounded, and so is their sum. What "
            "could be added up instead?",
            lambda case: repr(len(case.right) / case.n),
            select=lambda obs: repr(float(obs.actual["number"])),
        ),
        "model.training afterwards": Comparison(expected=lambda case: case.mode == "training"),
    },
    mistakes={
        "Right in the first seven digits only, as in float32. Which dtype has a quotient of two "
        "tensors, and what does Python make of two ints?": edit(
            SHARE, "(right / len(dataset)).item()"
        ),
        "Some samples come twice, to make the shares equal, and count twice.": [
            *with_sampler(SHARE, "right.item() / len(mine) / dist.get_world_size()"),
            *with_sampler(),
        ],
        "These are right guesses. What makes them a share?": [
            edit(SHARE, "right.item()"),
            *in_blocks(SHARE, "right.item()", SUM, ""),
        ],
        "Are these the right guesses in the last batch of each rank only?": in_blocks(
            "right +=", "right ="
        ),
        "This is the accuracy of this rank's own samples. How does it learn about the others?": (
            in_blocks(SUM, OWN_SHARE, SHARE, "right.item()")
        ),
        "These are this rank's right guesses, divided by all samples. Where are the others'?": (
            in_blocks(SUM, "")
        ),
        "This is the mean of the ranks' accuracies. Has each rank as many samples?": in_blocks(
            SUM, f"{OWN_SHARE}\n    {SUM}", SHARE, "right.item() / dist.get_world_size()"
        ),
        "This is a mean of batches. Has the last batch as many rows as the others?": in_blocks(
            "torch.tensor(0)",
            "torch.zeros(2)",
            "right += (model(features).argmax(dim=1) == labels).sum()",
            "hits = (model(features).argmax(dim=1) == labels).float()\n"
            "            right += torch.tensor([hits.mean(), 1])",
            SHARE,
            "(right[0] / right[1]).item()",
        ),
        "This is nan, and a rank has no samples. Which of its numbers exists anyway?": edit(
            SUM, f"right = right.double() / len(mine) * len(mine)\n    {SUM}"
        ),
        "It was divided by the number of ranks, too.": edit(
            SHARE, f"{SHARE} / dist.get_world_size()"
        ),
        "Which mode was the model in before the call?": [
            edit("model.train(was_training)", "model.train()"),
            edit("model.train(was_training)", ""),
        ],
    },
    unchanged_hint="The caller uses this model again. Which line restores what was changed?",
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
    },
    on_pass="each of 1 to 21 samples counted once, the work shared, at 1 to 4 ranks",
)
