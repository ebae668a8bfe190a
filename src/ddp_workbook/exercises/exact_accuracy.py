"""Compute the accuracy over a whole data set, whose samples are not to be divided by the ranks.

All ranks call the function, with the same model and the same data set of at least one sample, on
the CPU. dataset[i] is (features, label); the model makes of a batch of features a score for each
class, [rows, classes], and its guess is the class with the highest score.

- Every rank returns the same: the right guesses, divided by the samples, as one process has it.
  A DistributedSampler makes the ranks' shares equal with doubles; no sample counts twice here.
- The work is shared: each sample goes through the model of some rank, and no rank takes more than
  its share, which is len(dataset) / world_size, rounded up. There may be fewer samples than ranks.
- The model gets at most batch_size rows at once. It guesses in evaluation mode, without building a
  graph, and is afterwards as it was before, in training mode or not.
- A call may use one collective.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from math import isclose, isnan
from numbers import Real
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words

HINTS = [
    "Which samples are this rank's, if nothing is added to make the ranks equal? And which whole "
    "numbers of the ranks make up the accuracy?",
    "A Subset of the data set holds chosen samples, perhaps none, and a loader goes through it. "
    "Each rank counts, and counts can be added up.",
    "range can begin at the rank and take every world_size-th sample. Only the counts of right "
    "guesses must travel; by what are they divided at the end, and is that known without asking?",
]
FOR_ERRORS = {
    "by zero": "A rank may be without samples. Who divides by its samples alone?",
    "num_samples=0": "A rank may be without samples. Does it need the loader to shuffle them?",
    "non-empty": "A rank may be without samples. What does it put together then?",
    "size of tensor a": "Which of the labels belong to the rows of this batch?",
    "different dtypes": "Which dtype has what you send, on a rank without samples?",
    "Invalid function argument": "A collective takes a tensor. Who makes one of this number?",
    "no attribute 'sum'": "== of two tensors is a tensor. What do you compare?",
}
SIZES = (1, 2, 3, 4)
PAUSE = 0.05  # seconds that the others come later than rank 0: what is not waited for, shows
WRONG = {1, 4, 5, 9, 10, 13}  # samples that the model guesses wrongly; in the second call all others
MET = "A collective has run: who waits for it, and who uses its result?"

Taken = list[list[list[int]]]  # the samples of each batch on each rank


def exact_accuracy(model: nn.Module, dataset: Dataset, batch_size: int) -> float:
    """Share of the samples in `dataset` that `model` guesses rightly, in batches of `batch_size`."""
    ### BEGIN SOLUTION
    mine = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    right, was_training = torch.tensor(0), model.training
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(mine, batch_size):  # none where a rank has no samples
            right += (model(features).argmax(dim=1) == labels).sum()
    model.train(was_training)
    dist.all_reduce(right)  # whole numbers: their sum is exact
    return right.item() / len(dataset)
    ### END SOLUTION


def calls_of(size: int) -> list[tuple[int, int, bool, set[int]]]:
    """Samples, batch_size, training mode, and the samples that are guessed wrongly."""
    n, flipped = 4 * size + 1, set(range(4 * size + 1)) - WRONG
    return [(n, 2, True, WRONG), (n, 3, False, flipped), (max(size - 1, 1), 2, True, WRONG)]


def three_calls(exact_accuracy: Callable, item: tuple[int, int]) -> list[dict]:
    """In a rank: for each call what came back, what the model did, and how it is afterwards."""
    rank, size = item
    seen: list[dict] = []
    register_module_forward_hook(lambda *call: seen[-1]["calls"].append(call), with_kwargs=True)
    for n, batch_size, training, wrong in calls_of(size):
        model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(1.0)).train(training)
        model[0].weight.data, model[0].bias.data = torch.eye(3)[1:], torch.zeros(2)
        samples = torch.arange(n)
        guesses = samples % 3 % 2
        labels = guesses ^ torch.tensor([i in wrong for i in range(n)]).long()
        features = torch.stack([samples, 1 - guesses, guesses], dim=1).float()
        before = state(model)
        time.sleep(PAUSE if rank else 0)
        seen.append({"calls": []})
        answer = exact_accuracy(model, TensorDataset(features, labels), batch_size)
        seen[-1] |= {"words": in_words(answer), "value": number_in(answer)}
        seen[-1] |= {"changed": [what for what, was in before.items() if state(model)[what] != was]}
    time.sleep(2 * PAUSE if size > 1 and not rank else 0)
    for one in seen:
        calls = [call for call in one.pop("calls") if isinstance(call[0], nn.Linear)]
        batches = [[*args, *kwargs.values()][0].view(-1, 3)[:, 0] for _, args, kwargs, _ in calls]
        one["batches"] = [batch.int().tolist() for batch in batches]
        one["training"] = any(module.training for module, *_ in calls)
        one["graph"] = any(call[-1].requires_grad for call in calls)
    return seen


def state(model: nn.Module) -> dict:
    """What a call must leave as it was."""
    return {
        "the mode of the model": [module.training for module in model.modules()],
        "requires_grad of its parameters": [p.requires_grad for p in model.parameters()],
        "its weights": [p.tolist() for p in model.parameters()],
    }


def number_in(answer: Any) -> float | None:
    """The returned number, or that in a tensor; None for all else."""
    if isinstance(answer, Tensor) and answer.numel() == 1:
        answer = answer.item()
    return float(answer) if isinstance(answer, Real) and not isinstance(answer, bool) else None


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Look at mode, samples, number, and at what is left behind; then at the wire."""
    for size in sizes:
        seen, wire = attempt_on_ranks(attempt, three_calls, each=[(r, size) for r in range(size)])
        ops = [wire.loc[wire["rank"] == rank, "op"].tolist() for rank in range(size)]
        for call, (n, batch_size, training, wrong) in enumerate(calls_of(size)):
            ranks = [one[call] for one in seen]
            mode = "training" if training else "evaluation"
            called = (
                f"exact_accuracy(model in {mode} mode, dataset of {n}, batch_size={batch_size}); "
                f"right guesses: samples {in_words(sorted({*range(n)} - wrong))}"
            )
            judge_work(called, ranks, n)
            judge_number(called, ranks, n, wrong, ops)
            judge_rest(called, ranks, batch_size)
        for rank, names in enumerate(ops):
            if len(names) > 3:
                came_back = f"the right numbers, after {len(names)} collectives on rank {rank}"
                look = "Which numbers must the ranks exchange, and which does each know by itself?"
                raise NotYet(f"{attempt.name}, three times", came_back, "one for each call", look)
    return "each of 1 to 17 samples counted once, the work shared, one collective, at 1 to 4 ranks"


def judge_work(called: str, ranks: list[dict], n: int) -> None:
    """Raise NotYet if the mode is wrong, or if the samples are not shared."""
    share = -(-n // len(ranks))
    taken = [[sample for batch in one["batches"] for sample in batch] for one in ranks]
    missing = sorted(set(range(n)) - set().union(*taken))
    for rank, (one, own) in enumerate(zip(ranks, taken, strict=True)):
        more = "More than its share. Which samples are left to the other ranks?"
        if len(ranks) > 1 and all(len(some) == n for some in taken):
            more = "Every rank guesses everything: the number is there, but no time is saved."
        elif len(own) == n and not any(map(len, taken[:rank] + taken[rank + 1 :])):
            more = "One rank does all the work, and the others wait. What could they do meanwhile?"
        looks = {
            "It guesses as in training: dropout and its like are on. Who turns them off?": (
                one["training"]
            ),
            more: len(own) > share,
            "Samples are left out. Does the sampler or the loader drop what does not divide?": (
                missing
            ),
        }
        if look := next((words for words, holds in looks.items() if holds), ""):
            how = " in training mode" * one["training"]
            came_back = f"rank {rank}'s model took samples {in_words(own)}{how}"
            came_back += f"; on no rank: {in_words(missing)}" if missing else ""
            required = f"in evaluation mode at most {share} on a rank, and all {n} on some rank"
            raise NotYet(called, came_back, required, look)


def judge_number(called: str, ranks: list[dict], n: int, wrong: set[int], ops: list) -> None:
    """Raise NotYet if a rank has another number than one process."""
    right, values = len({*range(n)} - wrong), [one["value"] for one in ranks]
    for rank, one in enumerate(ranks):
        if one["value"] is None or not near(one["value"], right / n):
            look = next(thoughts(rank, values, [one["batches"] for one in ranks], n, wrong, ops))
            required = f"{right / n:.6g} on every rank, {right} of {n}"
            raise NotYet(called, f"{one['words']} on rank {rank}", required, look)


def near(value: float, right: float) -> bool:
    """Equal up to rounding."""
    return isclose(value, right, rel_tol=1e-5)
