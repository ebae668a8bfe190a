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
from functools import cache
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, Pattern, edit, in_words

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
NAMES = ["weight", "bias"]
INITIAL_WEIGHTS = torch.linspace(-1, 1, 8)  # rank 0's model; rank 1's is twice it
EVERY_EPOCH = [f"epoch {number}" for number in range(EPOCHS)]
ROW = torch.arange(ROWS)
IMAGES = torch.stack([ROW / ROWS, ROW * 7 % 11 / 11, ROW * 5 % 13 / 13], dim=1)
LABELS = ROW * 3 % 7 % 2


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


def make_args(_: int, rank: int) -> tuple:
    """The arguments of the call: rank 1's model is twice that of rank 0, and so on."""
    torch.manual_seed(100 + rank)
    model = nn.Linear(3, 2)
    nn.utils.vector_to_parameters(INITIAL_WEIGHTS * (rank + 1), model.parameters())
    return TensorDataset(IMAGES, LABELS), lambda: deepcopy(model), EPOCHS, BATCHES[0]


def call_and_observe(function: Callable, *arguments: Any) -> dict:
    """What comes back, the rows of each step, and the DDP that each step went through."""
    forwards: list[tuple] = []  # (module, args, kwargs, output)
    hook = register_module_forward_hook(lambda *call: forwards.append(call), with_kwargs=True)
    try:
        answer = function(*arguments)
    finally:
        hook.remove()
    calls = [call for call in forwards if call[-1].requires_grad]
    batches = [[*a, *k.values()][0] for module, a, k, _ in calls if isinstance(module, nn.Linear)]
    has_tensors = isinstance(answer, dict) and all(isinstance(v, Tensor) for v in answer.values())
    names = list(answer) if has_tensors else None
    return {
        "batches": [(images[:, 0] * ROWS).round().int().tolist() for images in batches],
        "ddp": [id(module) for module, *_ in calls if isinstance(module, DistributedDataParallel)],
        "returned": in_words(answer) if names is None else f"a dict with {names}",
        "weights": [answer[name].detach().cpu().flatten() for name in NAMES if names == NAMES],
    }


def rows(obs: Observation) -> list[int]:
    """All rows that this rank has taken, in order."""
    return [row for batch in obs.actual["batches"] for row in batch]


def epoch_errors(obs: Observation) -> dict[str, str]:
    """What is wrong with the rows of each epoch; "" if nothing is."""
    if obs.size > 1 and all(rows(rank_obs) == rows(obs) for rank_obs in obs.all_ranks):
        return dict.fromkeys(EVERY_EPOCH, "has the same rows on all ranks")
    epoch_rows = ROWS // obs.size
    epochs = [
        [rows(rank_obs)[i * epoch_rows :][:epoch_rows] for rank_obs in obs.all_ranks]
        for i in range(EPOCHS)
    ]
    errors = []
    for i, parts in enumerate(epochs):
        kinds = {
            "has some rows on no rank": len(set().union(*parts)) < ROWS,
            "is not shuffled": parts == [sorted(part) for part in parts],
            "has the order of an earlier epoch": parts in epochs[:i],
            "has the same rows on rank 0 as epoch 0": i
            and obs.size > 1
            and set(parts[0]) == set(epochs[0][0]),
        }
        errors.append(next((kind for kind, holds in kinds.items() if holds), ""))
    return dict(zip(EVERY_EPOCH, errors, strict=True))


def through_ddp(obs: Observation) -> tuple[int, int, float]:
    """Batches that went through DDP, through how many of them, and bytes of all_reduce a step.

    Whole numbers do not count: find_unused_parameters=True sends a map of what was used.
    """
    reductions = [row for row in obs.communication if row["op"] == "all_reduce"]
    total_bytes = sum(row["bytes"] for row in reductions if "float" in str(row["dtype"]))
    return len(obs.actual["ddp"]), len(set(obs.actual["ddp"])), total_bytes / STEPS


def flat(obs: Observation) -> Tensor:
    """The weights that this rank has returned."""
    return torch.cat(obs.actual["weights"])


@cache
def weights_after(batches: tuple[tuple[int, ...], ...]) -> Tensor:
    """The weights that one process gets from batches with these rows."""
    model = nn.utils.skip_init(nn.Linear, 3, 2)
    nn.utils.vector_to_parameters(INITIAL_WEIGHTS.clone(), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in map(list, batches):
        optimizer.zero_grad()
        F.cross_entropy(model(IMAGES[batch]), LABELS[batch]).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def single_process_weights(obs: Observation) -> Tensor:
    """The weights that one process gets from the batches that the ranks took."""
    steps = zip(*(rank_obs.actual["batches"] for rank_obs in obs.all_ranks), strict=True)
    return weights_after(tuple(tuple(chain(*parts)) for parts in steps))


SAMPLER, SET_EPOCH = "DistributedSampler(dataset)", "        sampler.set_epoch(epoch)"
DDP, LOSS = "ddp = DistributedDataParallel(model)", "cross_entropy(ddp(images)"
BY_HAND = """loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()"""

CHECK = DistributedCheck(
    may_seed=True,
    cases=lambda size: [size],
    call_text=f"to_ddp(dataset of {ROWS} rows, make_model, epochs={EPOCHS}, "
    f"batch_size={BATCHES[0]})",
    make_args=make_args,
    caller=call_and_observe,
    compare={
        "steps": Comparison(
            "What deals the rows out, and how many of a batch belong to one rank?",
            lambda size: EPOCHS * [batch // size for batch in BATCHES],
            select=lambda obs: [len(batch) for batch in obs.actual["batches"]],
            actual=lambda s: (
                f"rank {s.rank}'s model took {len(rows(s))} rows, in steps of {s.value}"
            ),
            required=lambda s: (
                f"{ROWS // s.size} rows in each of {EPOCHS} epochs, in steps of {s.expected}"
            ),
        ),
        "rows": Comparison(
            "Write down which rows each rank took in an epoch. Do all ranks together have one "
            "new order, and does each take its own part of it?",
            dict.fromkeys(EVERY_EPOCH, ""),
            select=epoch_errors,
            actual="{part} {value}",
            required="in each epoch all rows in a new random order, each on one rank",
        ),
        "DDP": Comparison(
            "Which of your lines send something in a step, or keep DDP from sending, and which "
            "model gets the images?",
            (STEPS, 1, 32.0),
            select=through_ddp,
            actual=lambda s: (
                "rank {}: {} batches through {} DDPs, all_reduce: {:g} bytes a step".format(
                    s.rank, *s.value
                )
            ),
            required=f"{STEPS} batches through 1 DDP, all_reduce: 32 bytes a step, the gradients",
            equal=lambda actual, expected: (
                actual[:2] == expected[:2] and abs(actual[2] - expected[2]) < 0.1
            ),
        ),
        "returned": Comparison(
            "What did the given loop return, and does every rank return it?", f"a dict with {NAMES}"
        ),
        "weights": Comparison(
            "The rows are right. Compare the rest with the loop of one process.",
            torch.zeros(8),
            select=lambda obs: flat(obs) - single_process_weights(obs),
            actual=lambda s: f"weight and bias {in_words(flat(s))} on rank {s.rank}",
            required=lambda s: (
                f"{in_words(single_process_weights(s))} on every rank, as in one process"
            ),
            equal=lambda actual, expected: torch.allclose(actual, expected, atol=1e-4),
        ),
    },
    mistakes={
        "Do all epochs run, each to its last batch?": [
            edit("sampler=sampler", "sampler=sampler, drop_last=True"),
            edit("range(epochs)", "range(1, epochs)"),
        ],
        "All ranks took the same rows. What tells the ranks apart?": [
            edit(SAMPLER, "DistributedSampler(dataset, rank=0)"),
            edit(SAMPLER, "DistributedSampler(dataset, num_replicas=1, rank=0)"),
        ],
        "Does batch_size count one rank's rows, or those of all?": edit(
            "DataLoader(dataset, share", "DataLoader(dataset, batch_size"
        ),
        "Do all ranks deal from the same order, or does each make one of its own?": edit(
            SAMPLER, "DistributedSampler(dataset, seed=dist.get_rank())"
        ),
        "Has the shuffling been lost on the way?": edit(
            SAMPLER, "DistributedSampler(dataset, shuffle=False)"
        ),
        "Is the sampler told which epoch it is, and before the rows are taken?": [
            edit(SET_EPOCH, "", "optimizer.step()", f"optimizer.step()\n{SET_EPOCH}"),
            edit("set_epoch(epoch)", "set_epoch(0)"),
        ],
        "Which comes first, shuffling or dealing?": edit(
            SAMPLER,
            "range(dist.get_rank(), len(dataset), dist.get_world_size())",
            "DataLoader(dataset, share, sampler=sampler)",
            "DataLoader(torch.utils.data.Subset(dataset, sampler), share, shuffle=True)",
            SET_EPOCH,
            "",
        ),
        "The averaging is done by hand. DDP does that, and makes all ranks start alike.": [
            edit(LOSS, "cross_entropy(model(images)", DDP, "", "loss.backward()", BY_HAND),
            edit(LOSS, "cross_entropy(model(images)", "loss.backward()", BY_HAND),
        ],
        "Each rank trains a model of its own. What keeps the models equal?": edit(
            DDP, "", LOSS, "cross_entropy(model(images)"
        ),
        "DDP sees only what goes through it. Is it given the images?": edit(
            LOSS, "cross_entropy(model(images)"
        ),
        "One DDP is enough. Each new one broadcasts all weights.": [
            edit(DDP, "", SET_EPOCH, f"        {DDP}\n{SET_EPOCH}"),
            edit(DDP, "", LOSS, "cross_entropy(DistributedDataParallel(model)(images)"),
        ],
        "Into which model can weights with such names be loaded?": edit(
            "model.state_dict()", "ddp.state_dict()"
        ),
        "Untrained. Does the optimizer hold what you train and return?": edit(
            "SGD(model.", "SGD(make_model()."
        ),
        "The steps have another length. DDP makes a mean. Which line multiplies or divides, too?": [
            edit("loss.backward()", f"(loss {by} dist.get_world_size()).backward()") for by in "*/"
        ],
        "Too many rows. DDP deals out no rows: what does, and how often?": Pattern(
            lambda s: len(rows(s)) > EPOCHS * ROWS // s.size, "steps"
        ),
    },
    errors={
        "device_ids": "The model is on the CPU: there is no device to choose.",
    },
    on_pass="rows dealt again each epoch, 32 bytes of gradients a step, the weights of one "
    "process, at 1 to 4 ranks",
)
