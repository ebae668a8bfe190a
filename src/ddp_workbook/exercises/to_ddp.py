"""Turn the training loop of one process, which the cell holds, into the loop of every rank.

All ranks call the function on the CPU. The caller has made the process group, and will end it.

- In every epoch all rows are shuffled and dealt out again; each row goes to one rank, once.
- All ranks together share each batch of `batch_size` rows evenly, also the smaller last one. Both
  sizes are multiples of the world size.
- Random numbers and what `make_model()` returns differ from rank to rank; all ranks begin with rank
  0's weights.
- One DistributedDataParallel averages the gradients, and only they are all-reduced, once a step.
- Every rank returns the weights that one process gets from the same batches, under the same names.
"""

from collections.abc import Callable
from copy import deepcopy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from ddp_workbook.exercises import Look, OnRanks, Seen, When, in_words

MINUTES = 20
HINTS = [
    "Two of PyTorch's classes are missing here: one deals the rows out, the other averages the "
    "gradients. Which are they, and from where do you import them?",
    "The sampler takes the place of shuffle, and must be told before each epoch which epoch it is. "
    "How many rows of a batch belong to one rank?",
    "DDP is a module around yours. What must go through it? Which parameter names does your module "
    "have, and which does DDP have?",
]
ROWS, BATCHES, EPOCHS, STEPS = 60, (24, 24, 12), 3, 9
NAMES, BEGIN = ["weight", "bias"], torch.linspace(-1, 1, 8)  # rank 0's model; rank 1's is twice it
ROW = torch.arange(ROWS)
IMAGES = torch.stack([ROW / ROWS, ROW * 7 % 11 / 11, ROW * 5 % 13 / 13], dim=1)
LABELS = ROW * 3 % 7 % 2
FORWARDS: list[tuple] = []  # in a rank: (module, args, kwargs, output)


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


def arguments(_: None, rank: int) -> tuple:
    """The arguments of the call. Every forward of any module is noted from now on."""
    torch.manual_seed(100 + rank)
    model = nn.Linear(3, 2)
    nn.utils.vector_to_parameters(BEGIN * (rank + 1), model.parameters())
    register_module_forward_hook(lambda *call: FORWARDS.append(call), with_kwargs=True)
    return TensorDataset(IMAGES, LABELS), lambda: deepcopy(model), EPOCHS, BATCHES[0]


def seen_of(answer: object, *_: object) -> dict:
    """What came back, the rows of each step, and the DDP that each went through."""
    calls = [call for call in FORWARDS if call[-1].requires_grad]
    batches = [[*a, *k.values()][0] for module, a, k, _ in calls if isinstance(module, nn.Linear)]
    right_kind = isinstance(answer, dict) and all(isinstance(v, Tensor) for v in answer.values())
    names = list(answer) if right_kind else None
    return {
        "taken": [(images[:, 0] * ROWS).round().int().tolist() for images in batches],
        "ddp": [id(module) for module, *_ in calls if isinstance(module, DistributedDataParallel)],
        "returned": in_words(answer) if names is None else f"a dict with {names}",
        "weights": [answer[one].detach().cpu().flatten() for one in NAMES if names == NAMES],
    }


def rows(seen: Seen) -> list[int]:
    """All rows that this rank has taken, in order."""
    return [row for batch in seen.came["taken"] for row in batch]


def share(seen: Seen) -> list[int]:
    """How many rows of each batch of an epoch are one rank's."""
    return [batch // seen.size for batch in BATCHES]


def same_rows(seen: Seen) -> bool:
    """Whether all of several ranks have taken the same rows."""
    return seen.size > 1 and all(rows(one) == rows(seen) for one in seen.everyone)


def what_is_wrong(seen: Seen) -> str:
    """What is wrong with the rows, in the first epoch where something is; "" if nothing is."""
    cut = ROWS // seen.size
    epochs = [[rows(one)[i * cut :][:cut] for one in seen.everyone] for i in range(EPOCHS)]
    for i, parts in enumerate(epochs):
        if missing := ROWS - len(set().union(*parts)):
            return f"in epoch {i}, {missing} rows were on no rank"
        if parts == [sorted(part) for part in parts]:
            return f"epoch {i} is not shuffled"
        if parts in epochs[:i]:
            alone = "" if epochs.count(parts) > 2 else " alone"
            return f"epoch {i}{alone} has the order of epoch {epochs.index(parts)}"
        if seen.size > 1 and i and set(parts[0]) == set(epochs[0][0]):
            return f"rank 0 has the same rows in epoch {i} as in epoch 0"
    return ""


def through_ddp(seen: Seen) -> tuple[int, int, float]:
    """Batches that went through DDP, through how many of them, and bytes of all_reduce a step.

    Whole numbers do not count: find_unused_parameters=True sends a map of what was used.
    """
    reduced = [row for row in seen.wire if row["op"] == "all_reduce"]
    sent = sum(row["bytes"] for row in reduced if "float" in str(row["dtype"]))
    return len(seen.came["ddp"]), len(set(seen.came["ddp"])), sent / STEPS


def flat(seen: Seen) -> Tensor:
    """The weights that this rank has returned."""
    return torch.cat(seen.came["weights"])


def replay(seen: Seen, factor: float = 1) -> Tensor:
    """Weights after the training in one process on these batches, each gradient times `factor`."""
    weights, speed = BEGIN, 0
    for parts in zip(*(one.came["taken"] for one in seen.everyone), strict=True):
        taken = [row for part in parts for row in part]
        scores = IMAGES[taken] @ weights[:6].view(2, 3).T + weights[6:]
        error = (scores.softmax(dim=1) - F.one_hot(LABELS[taken], 2)) / len(taken) * factor
        speed = 0.9 * speed + torch.cat([(error.T @ IMAGES[taken]).flatten(), error.sum(dim=0)])
        weights = weights - 0.05 * speed
    return weights


def near(one: Tensor, other: Tensor) -> bool:
    """Equal up to the rounding of a training."""
    return torch.allclose(one, other, atol=1e-4)


def apart(seen: Seen) -> bool:
    """Whether the ranks made the same steps, each from the weights that it began with."""
    first, last = (flat(seen.everyone[rank]) for rank in (0, -1))
    return seen.size > 1 and near(first - BEGIN, last - BEGIN * seen.size)


STEPS_OF_ROWS = Look(
    of=lambda seen: [len(batch) for batch in seen.came["taken"]] == EPOCHS * share(seen),
    right=True,
    mistakes={
        "Do all epochs run, each to its last batch?": When(
            lambda s: (
                len(rows(s)) < EPOCHS * ROWS // s.size
                and {len(batch) for batch in s.came["taken"]} <= {*share(s)}
            )
        ),
        "Rows are missing. Are they cut twice, or dealt to ranks that do not exist?": When(
            lambda s: len(rows(s)) < EPOCHS * ROWS // s.size
        ),
        "All ranks took the same rows. What tells the ranks apart?": When(same_rows),
        "Too many rows. DDP deals out no rows: what does, and how often?": When(
            lambda s: len(rows(s)) > EPOCHS * ROWS // s.size
        ),
    },
    otherwise="Does batch_size count one rank's rows, or those of all?",
    came=lambda s: (
        f"rank {s.rank}'s model took {len(rows(s))} rows, in steps of "
        f"{[len(batch) for batch in s.came['taken']]}"
    ),
    required=lambda s: f"{EPOCHS} epochs, on each rank with steps of {share(s)} rows",
)

DEALT_OUT = Look(
    of=what_is_wrong,
    right="",
    mistakes={
        "All ranks took the same rows. What tells the ranks apart?": When(same_rows),
        "Do all ranks deal from the same order, or does each make one of its own?": When(
            lambda s: "on no rank" in s.value
        ),
        "Has the shuffling been lost on the way?": When(lambda s: "not shuffled" in s.value),
        "When is the sampler told which epoch it is, before the rows are taken, or after?": When(
            lambda s: "1 alone has the order of epoch 0" in s.value
        ),
        "What tells the epochs apart?": When(lambda s: "has the order" in s.value),
    },
    otherwise="Which comes first, shuffling or dealing?",
    came="{value}",
    required="in each epoch all rows in a new random order, each on one rank",
    words=str,
)

THROUGH_DDP = Look(
    of=through_ddp,
    right=(STEPS, 1, 32.0),
    mistakes={
        "The averaging is done by hand. DDP does that, and makes all ranks start alike.": When(
            lambda s: not s.value[0] and s.value[2] >= 32
        ),
        "Each rank trains a model of its own. What keeps the models equal?": When(
            lambda s: not s.value[0] and "broadcast" not in s.ops
        ),
        "DDP sees only what goes through it. Is it given the images?": When(
            lambda s: s.value[0] < STEPS
        ),
        "One DDP is enough. Each new one broadcasts all weights.": When(lambda s: s.value[1] > 1),
        "What keeps DDP from sending the gradients?": When(lambda s: s.value[2] < 16),
        "A few numbers more than the gradients are all-reduced. Which line sends them?": When(
            lambda s: 32 < s.value[2] < 64
        ),
    },
    otherwise="More than the gradients. What is sent after DDP has averaged them?",
    came=lambda s: "rank {}: {} batches through {} DDPs, all_reduce: {:g} bytes a step".format(
        s.rank, *s.value
    ),
    required=f"{STEPS} batches through 1 DDP, all_reduce: 32 bytes a step, which are the gradients",
    same=lambda one, other: one[:2] == other[:2] and abs(one[2] - other[2]) < 0.1,
)

RETURNED = Look(
    of=lambda seen: seen.came["returned"],
    right=f"a dict with {NAMES}",
    mistakes={
        "Into which model can weights with such names be loaded?": When(
            lambda s: "module.weight" in s.value
        ),
    },
    otherwise="What did the given loop return, and does every rank return it?",
    words=str,
)

WEIGHTS = Look(
    of=lambda seen: near(flat(seen), replay(seen)),
    right=True,
    mistakes={
        "Untrained. Does the optimizer hold what you train and return?": When(
            lambda s: near(flat(s), BEGIN)
        ),
        "All ranks made the same steps. From which weights did each of them begin?": When(apart),
        "Each step is {size} times too long. The mean needs no factor.": When(
            lambda s: near(flat(s), replay(s, s.size))
        ),
        "Each step is {size} times too short. Is a mean divided again?": When(
            lambda s: near(flat(s), replay(s, 1 / s.size))
        ),
    },
    otherwise="The rows are right. Compare the rest with the loop of one process.",
    came=lambda s: f"weight and bias {in_words(flat(s))} on rank {s.rank}",
    required=lambda s: f"{in_words(replay(s))} on every rank, as in one process",
)

CHECK = OnRanks(
    may_seed=True,
    cases=lambda size: [None],
    called=f"to_ddp(dataset of {ROWS} rows, make_model, epochs={EPOCHS}, batch_size={BATCHES[0]})",
    given=arguments,
    observe=seen_of,
    looks=[STEPS_OF_ROWS, DEALT_OUT, THROUGH_DDP, RETURNED, WEIGHTS],
    errors={
        "mutually exclusive with shuffle": "Two arguments of the loader want to choose the rows.",
        "default process group twice": "The caller has made the group already.",
        "device_ids": "The model is on the CPU: there is no device to choose.",
        "no attribute 'set_epoch'": "Which object makes the order? This one must know the epoch.",
    },
    proves="rows dealt again each epoch, 32 bytes of gradients a step, the weights of one process, "
    "at 1 to 4 ranks",
)
