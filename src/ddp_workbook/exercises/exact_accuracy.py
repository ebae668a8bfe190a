"""Compute the accuracy over a whole data set, also where the ranks cannot share it equally.

All ranks call it, on the CPU, with the same model and data set, of at least one sample. dataset[i]
is (features, label); of a batch the model makes scores [rows, classes], and the highest is a guess.

- Every rank returns the same: the right guesses, divided by the samples, as one process has it. A
  DistributedSampler adds doubles to make the ranks equal; here each sample counts once.
- The work is shared: each sample goes through the model of some rank, and no rank takes more than
  len(dataset) / world_size of them, rounded up. There may be fewer samples than ranks.
- The model gets at most batch_size rows at once. It guesses in evaluation mode, without building a
  graph, and is afterwards as it was before, in training mode or not. A call has one collective.
"""

import time
from collections.abc import Callable, Iterator
from math import nan

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words, judge_by
from ddp_workbook.exercises.judging.single_number import near, number_in

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
    "Invalid function argument": "A collective takes a tensor. Who makes one of this number?",
}
SIZES = (1, 2, 3, 4)
PAUSE = 0.05  # seconds that the others come later than rank 0: what is not waited for, shows
MET = "A collective has run: who waits for it, and who uses its result?"
WRONG = {1, 3, 5, 9, 10, 13}  # samples that are guessed wrongly; in the second call all others


def exact_accuracy(model: nn.Module, dataset: Dataset, batch_size: int) -> float:
    """Share of the samples in `dataset` that `model` guesses rightly, `batch_size` at a time."""
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


def calls_of(size: int) -> list[tuple[int, int, str, set[int]]]:
    """Samples, batch_size, mode of the model, and the samples that are guessed wrongly."""
    n, right = 5 * size - 1, set(range(5 * size)) - WRONG
    begin, end = (4 * size + 1, 2, "training", WRONG), (max(size - 1, 1), 2, "training", WRONG)
    return [begin, (n, 3, "evaluation", right), end]


def three_calls(exact_accuracy: Callable, item: tuple[int, int]) -> list[dict]:
    """In a rank: for each call what came back, what the model did, and how it is afterwards."""
    (rank, size), seen = item, []

    def note(module: nn.Module, args: tuple, kwargs: dict, scores: Tensor) -> None:
        if isinstance(module, nn.Linear):
            rows = [*args, *kwargs.values()][0].view(-1, 3)
            seen[-1]["batches"].append(rows[:, 0].int().tolist())
            seen[-1]["training"] |= module.training
            seen[-1]["graph"] |= scores.requires_grad

    register_module_forward_hook(note, with_kwargs=True)
    for n, batch_size, mode, wrong in calls_of(size):
        model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(1.0)).train(mode == "training")
        model[0].weight.data, model[0].bias.data = torch.eye(3)[1:], torch.zeros(2)
        guesses, before = torch.arange(n) % 3 % 2, state(model)
        labels = guesses ^ torch.tensor([i in wrong for i in range(n)]).long()
        features = torch.stack([torch.arange(n), 1 - guesses, guesses], dim=1).float()
        time.sleep(PAUSE if rank and not seen else 0)  # then it shows who does not wait
        seen.append({"batches": [], "training": False, "graph": False})
        answer = exact_accuracy(model, TensorDataset(features, labels), batch_size)
        changed = ", ".join(what for what in before if state(model)[what] != before[what])
        seen[-1] |= {"words": in_words(answer), "value": number_in(answer), "changed": changed}
    time.sleep(2 * PAUSE if size > 1 and not rank else 0)
    return seen


def state(model: nn.Module) -> dict[str, list]:
    """What a call must leave as it was."""
    modes = [module.training for module in model.modules()]
    return {"its mode": modes, "requires_grad": [p.requires_grad for p in model.parameters()]}


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Look at mode, samples, number, and at what is left behind; then at the wire."""
    for size in sizes:
        seen, wire = attempt_on_ranks(attempt, three_calls, each=[(r, size) for r in range(size)])
        ops = [wire.loc[wire["rank"] == rank, "op"].tolist() for rank in range(size)]
        for call, (n, batch_size, mode, wrong) in enumerate(calls_of(size)):
            ranks, right = [one[call] for one in seen], sorted({*range(n)} - wrong)
            called = (
                f"exact_accuracy(model in {mode} mode, dataset of {n}, batch_size={batch_size})"
            )
            called += f"; right guesses: samples {in_words(right)}"
            judge_work(called, ranks, n)
            judge_number(called, ranks, n, set(right), ops)
            judge_rest(called, ranks, batch_size, ops)
    return "each of 1 to 19 samples counted once, the work shared, one collective, at 1 to 4 ranks"


def judge_work(called: str, ranks: list[dict], n: int) -> None:
    """The mode of the model, and who took which samples."""
    taken = [[sample for batch in one["batches"] for sample in batch] for one in ranks]
    share, missing = -(-n // len(ranks)), sorted(set(range(n)) - set().union(*taken))
    for rank, own in enumerate(taken):
        mode = "training" if ranks[rank]["training"] else "evaluation"
        every, alone = len(own) == n > share, sum(map(len, taken)) == len(own)
        judge_by(
            called,
            f"rank {rank}'s model, in {mode} mode, took samples {in_words(own)}; "
            f"on no rank: {in_words(missing) if missing else 'none'}",
            f"in evaluation mode at most {share} on a rank, and each of the {n} on some rank",
            (mode == "training", "Dropout and its like are on. What turns them off?"),
            (every and alone, "One rank works, and the others wait. What could they do?"),
            (every, "A rank that guesses everything saves no time. Which part is its own?"),
            (len(own) > share, "More than its share. Which samples are left to the others?"),
            (missing, "Left out. Does a sampler or a loader drop what does not divide?"),
        )


def judge_number(called: str, ranks: list[dict], n: int, right: set[int], ops: list) -> None:
    """The number on each rank, which is that of one process."""
    for rank, one in enumerate(ranks):
        if not near(one["value"], len(right) / n):
            required = f"{len(right) / n:.6g} on every rank, {len(right)} of {n}"
            look = next(thoughts(rank, ranks, n, right, ops[rank]))
            raise NotYet(called, f"{one['words']} on rank {rank}", required, look)


def thoughts(rank: int, ranks: list[dict], n: int, right: set[int], ops: list) -> Iterator[str]:
    """What may lie behind a wrong number, from the specific to the general."""
    value, size, met = ranks[rank]["value"], len(ranks), MET if ops else "Nothing was sent."
    hits = [[[i in right for i in batch] for batch in one["batches"] if batch] for one in ranks]
    rows, counts = ([sum(map(one, own)) for own in hits] for one in (len, sum))
    parts = [count / (own or 1) for count, own in zip(counts, rows, strict=True)]
    batches = [[sum(batch) / len(batch) for batch in own] for own in hits]
    if value is None:
        yield "One number is to come back, on every rank, on every way through the function."
    if {"reduce", "gather"} & set(ops) and rank:
        yield "After reduce or gather one rank alone has the result. How do the others get it?"
    alike = len({one["value"] for one in ranks}) == 1 < size
    last = sum(sum(own[-1]) for own in hits if own)
    means = [sum(own) / (len(own) or 1) for own in batches]
    of_batches = [means[rank], sum(means) / size, sum(map(sum, batches)) / sum(map(len, batches))]
    typical = {
        f"{sum(rows)} rows for {n} samples: doubles count like others.": [sum(counts) / sum(rows)],
        "The right guesses of doubles count, too.": [sum(counts) / n] * (sum(rows) > n),
        "This is rank 0's accuracy, on every rank. Where are the others?": [parts[0]] * alike,
        "These are right guesses. What makes them a share?": [len(right), sum(counts)],
        "A rank without samples has no accuracy. Which of its numbers is there all the same?": [
            nan
        ],
        "Are these the right guesses in the last batch of each rank only?": [last / n],
        "No guess is right? Which line rounds down, or begins to count again?": [0],
        f"This is the accuracy of this rank's own samples. {met}": [parts[rank]],
        f"This rank's right guesses, divided by all samples. {met}": [counts[rank] / n],
        "This is the mean of the ranks' accuracies. Has each as many samples?": [sum(parts) / size],
        "This is a mean of batches. Has the last batch as many rows as the others?": of_batches,
        "It was divided by the number of ranks, too.": [len(right) / n / size],
    }
    yield from (words for words, wrongs in typical.items() if any(near(value, w) for w in wrongs))
    yield "Which samples are in this number, and how often does each count?"


def judge_rest(called: str, ranks: list[dict], batch_size: int, ops: list) -> None:
    """What each call left behind, or used up on the way; `ops` are those of all three calls."""
    for rank, one in enumerate(ranks):
        largest, graph = max(map(len, one["batches"]), default=0), "" if one["graph"] else "out"
        judge_by(
            called,
            f"the right number on rank {rank}, scores with{graph} a graph, batches of {largest}, "
            f"{len(ops[rank])} collectives in 3 calls; then changed: {one['changed'] or 'nothing'}",
            f"no graph, batches of at most {batch_size}, 3 collectives, the model as it was before",
            (one["changed"], "The caller goes on with this model. How was it before the call?"),
            (one["graph"], "What is kept in memory for a backward that never comes?"),
            (largest > batch_size, "The caller's memory holds no more rows. Who cuts batches?"),
            (len(ops[rank]) > 3, "Which numbers must travel, and which does each rank know?"),
        )
