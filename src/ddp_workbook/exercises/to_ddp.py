"""Turn the training loop of one process, which the cell holds, into the loop of every rank.

All ranks call it alike, on the CPU, in a group that the caller has made and will end. Rules:

- In every epoch all rows are shuffled and dealt out anew; each row goes to one rank, once.
- All ranks together share each batch of `batch_size` rows evenly, and also the smaller last one.
- Random numbers and `make_model()` differ from rank to rank; all begin with rank 0's weights.
- One DistributedDataParallel averages the gradients; all_reduce sends them once a step.
- Every rank returns the weights that one process gets from the same batches, under the same names.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from pandas import Series
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from ddp_workbook.exercises import Attempt, attempt_on_ranks, in_words, judge_by

HINTS = [
    "The cell imports two classes that its loop does not use. What does each of them do?",
    "The sampler takes the place of shuffle, and must be told, before each epoch, which one it is. "
    "How many rows of a batch are one rank's?",
    "DDP is a module around yours: what must go through it? Which names has yours, which has DDP?",
]
FOR_ERRORS = {
    "mutually exclusive with shuffle": "Two arguments of the loader want to choose the rows.",
    "default process group twice": "The caller has made the group already.",
    "device_ids": "The model is on the CPU: there is no device to choose.",
    "no attribute 'set_epoch'": "Which object makes the order? This one must know the epoch.",
}
MAY_SEED = True
SIZES = (1, 2, 3, 4)
ROWS, BATCHES, EPOCHS, STEPS = 60, (24, 24, 12), 3, 9
NAMES, BEGIN = ["weight", "bias"], torch.linspace(-1, 1, 8)  # rank 0's model; rank 1's is twice it
ROW = torch.arange(ROWS)
IMAGES = torch.stack([ROW / ROWS, ROW * 7 % 11 / 11, ROW * 5 % 13 / 13], dim=1)
LABELS = ROW * 3 % 7 % 2
near = partial(torch.allclose, atol=1e-4)


def to_ddp(dataset: Dataset, make_model: Callable, epochs: int, batch_size: int) -> dict:
    """Train a model on the rows (image [3], label []) of `dataset`; return its final state_dict."""
    ### BEGIN SOLUTION
    sampler = DistributedSampler(dataset)
    share = batch_size // dist.get_world_size()
    loader = DataLoader(dataset, share, sampler=sampler)
    model = make_model()
    ddp = DistributedDataParallel(model)  # broadcasts rank 0's weights
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # else all epochs have the order of the first
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(images), labels)
            loss.backward()
            optimizer.step()
    return model.state_dict()
    ### GIVEN
    # # TODO: this is the loop of one process; make it the loop of every rank
    # loader = DataLoader(dataset, batch_size, shuffle=True)
    # model = make_model()
    # optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    # for epoch in range(epochs):
    #     for images, labels in loader:
    #         optimizer.zero_grad()
    #         loss = F.cross_entropy(model(images), labels)
    #         loss.backward()
    #         optimizer.step()
    # return model.state_dict()
    ### END SOLUTION


def watched(to_ddp: Callable, rank: int) -> dict:
    """In a rank: what came back, the rows of each step, and the DDP that they went through."""
    torch.manual_seed(100 + rank)
    model, calls = nn.Linear(3, 2), []
    nn.utils.vector_to_parameters(BEGIN * (rank + 1), model.parameters())
    register_module_forward_hook(lambda *call: calls.append(call), with_kwargs=True)
    answer = to_ddp(TensorDataset(IMAGES, LABELS), lambda: deepcopy(model), EPOCHS, BATCHES[0])
    calls = [call for call in calls if call[-1].requires_grad]  # module, args, kwargs, output
    batches = [[*a, *k.values()][0] for module, a, k, _ in calls if isinstance(module, nn.Linear)]
    right_kind = isinstance(answer, dict) and all(isinstance(v, Tensor) for v in answer.values())
    names = list(answer) if right_kind else in_words(answer)
    return {
        "taken": [(images[:, 0] * ROWS).round().int().tolist() for images in batches],
        "ddp": [id(module) for module, *_ in calls if isinstance(module, DistributedDataParallel)],
        "names": names if dist.is_initialized() else "weights, but no group any more",
        "weights": [answer[one].detach().cpu().flatten() for one in NAMES if names == NAMES],
    }


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Look at the rows, at DDP and the wire, and at the weights, at each world size."""
    for size in sizes:
        seen, wire = attempt_on_ranks(attempt, watched, each=range(size))
        judge_rows([one["taken"] for one in seen])
        for rank, one in enumerate(seen):
            judge_ddp(rank, one["ddp"], wire[wire["rank"] == rank].groupby("op")["bytes"].sum())
        judge_weights(seen)
    return "rows dealt out anew, 32 bytes of gradients a step, weights of one process, 1 to 4 ranks"


judge = partial(
    judge_by,
    f"to_ddp(dataset of {ROWS} rows, make_model, epochs={EPOCHS}, batch_size={BATCHES[0]})",
)


def judge_rows(taken: list[list[list[int]]]) -> None:
    """By rank and step: each row on one rank in each epoch, in equal shares, in a new order."""
    size = len(taken)
    share, cut = [rows // size for rows in BATCHES], ROWS // size
    rows = [[row for batch in batches for row in batch] for batches in taken]
    for rank, (own, batches) in enumerate(zip(rows, taken, strict=True)):
        steps, fewer = [len(batch) for batch in batches], len(own) < EPOCHS * cut
        judge(
            f"rank {rank}'s model took {len(own)} rows, first {own[:4]}, in steps of {steps}",
            f"{EPOCHS} epochs, on each rank with steps of {share} rows, and no row on two ranks",
            (fewer and set(steps) <= set(share), "Do all epochs run, each to its last batch?"),
            (fewer, "Rows are missing. Are they cut twice, or dealt to ranks that do not exist?"),
            (rows.count(own) == size > 1, "All ranks took the same rows. What tells ranks apart?"),
            (len(own) > EPOCHS * cut, "Too many. DDP deals out no rows: what does, and how often?"),
            (steps != EPOCHS * share, "Does batch_size count one rank's rows, or those of all?"),
        )
    epochs = [[own[i * cut :][:cut] for own in rows] for i in range(EPOCHS)]
    for i, parts in enumerate(epochs):
        missing, ordered = ROWS - len(set().union(*parts)), [sorted(part) for part in parts]
        always = size > 1 and i and set(parts[0]) == set(epochs[0][0])
        judge(
            f"in epoch {i}, rank 0 began with {parts[0][:4]}, and {missing} rows were on no rank",
            "in each epoch all rows, each on one rank, in a new random order",
            (missing, "Do all ranks cut the same order, or does each make one of its own?"),
            (parts == ordered, "Has the shuffling been lost on the way?"),
            (parts in epochs[:i], f"As in epoch {i - 1}. What tells the epochs apart, and when?"),
            (always, "It has the same rows in all epochs. Which is first, shuffling or dealing?"),
        )


def judge_ddp(rank: int, ddps: list[int], sent: Series) -> None:
    """The DDP object that each step went through, and the bytes that this rank sent, by op."""
    step, none = sent.get("all_reduce", 0) / STEPS, not ddps and "broadcast" not in sent
    by_hand, made = not ddps and sum(sent) >= 32 * STEPS, len(set(ddps))
    judge(
        f"rank {rank}: {len(ddps)} batches through {made} DDPs, all_reduce: {step:g} bytes a step",
        f"{STEPS} batches through 1 DDP, all_reduce: 32 bytes a step, which are the gradients",
        (by_hand, "The averaging is done by hand. DDP does that, and makes all ranks begin alike."),
        (none, "Each rank trains a model of its own. What makes them one?"),
        (len(ddps) < STEPS, "DDP sees only what goes through it. Is it given the images?"),
        (made > 1, "One DDP is enough. Each of them sends all weights when it is made."),
        (step < 16, "What keeps DDP from sending the gradients?"),
        (step >= 64, "More than the gradients. What is sent when DDP has averaged them?"),
    )


def judge_weights(seen: list[dict]) -> None:
    """The weights of one process, with their names, on every rank."""
    for rank, names in enumerate(one["names"] for one in seen):
        judge(
            f"{names} on rank {rank}",
            f"a dict with {NAMES} on every rank, and the group as it was",
            ("module.weight" in names, "Into which model can weights with such names be loaded?"),
            ("no group" in names, "Whoever made the group also ends it."),
            (names != NAMES, "What did the given loop return, and does every rank return it?"),
        )
    steps, size = zip(*(one["taken"] for one in seen), strict=True), len(seen)
    batches = [[row for part in parts for row in part] for parts in steps]
    right, long, short = (replay(batches, factor) for factor in (1, size, 1 / size))
    ends = [torch.cat(one["weights"]) for one in seen]
    alike = size > 1 and near(ends[0] - BEGIN, ends[-1] - BEGIN * size)
    for rank, end in enumerate(ends):
        judge(
            f"weight and bias {in_words(end)} on rank {rank}",
            f"{in_words(right)} on every rank, as in one process",
            (near(end, right), ""),
            (near(end, BEGIN), "Untrained. Does the optimizer hold what you train and return?"),
            (alike, "All ranks made the same steps. From where did each of them begin?"),
            (near(end, long), f"Each step is {size} times too long. The mean needs no factor."),
            (near(end, short), f"Each step is {size} times too short. Is a mean divided again?"),
            (True, "The rows are right. Compare the rest with the loop of one process."),
        )


def replay(batches: list[list[int]], factor: float = 1) -> Tensor:
    """Weights after the training in one process on these batches, each gradient times `factor`."""
    weights, speed = BEGIN, 0
    for rows in batches:
        scores = IMAGES[rows] @ weights[:6].view(2, 3).T + weights[6:]
        error = (scores.softmax(dim=1) - F.one_hot(LABELS[rows], 2)) / len(rows) * factor
        speed = 0.9 * speed + torch.cat([(error.T @ IMAGES[rows]).flatten(), error.sum(dim=0)])
        weights = weights - 0.05 * speed
    return weights
