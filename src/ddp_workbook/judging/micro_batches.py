"""A step on several micro-batches through DDP: what accumulate and mixed_step have in common."""

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.judging.check import edit
from ddp_workbook.judging.comparison import Comparison

SHARED_MISTAKES = {  # edits of both solutions
    "ddp was not called. DDP sees only what goes through it: which model gets the images?": edit(
        "ddp(images)", "ddp.module(images)"
    ),
    "Each rank has made a step with its own gradients. DDP averages in a backward outside of "
    "no_sync: which one was that?": edit("nullcontext() if last else", ""),
    "Only the first micro-batch was averaged over the ranks. After which one are all gradients in "
    ".grad?": edit("number == len(micro_batches)", "number == 1"),
    "Only the last micro-batch is in this step. Where are the gradients of the others cleared?": (
        edit("        last =", "        optimizer.zero_grad()\n        last =")
    ),
    "What an earlier step left in .grad is in this step, too. Where do you clear it?": edit(
        "    optimizer.zero_grad()\n", ""
    ),
    "Every backward sends all gradients. DDP decides in the forward whether the backward after it "
    "sends. How do you keep it from sending until all are added up?": edit(
        "if last else ddp.no_sync()", ""
    ),
}


def wrap_in_ddp(model: nn.Linear, begin: Tensor, old_gradient: float) -> DistributedDataParallel:
    """The model with the numbers `begin`, and with `old_gradient` in .grad, of an earlier step."""
    nn.utils.vector_to_parameters(begin.clone(), model.parameters())
    ddp = DistributedDataParallel(model)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, old_gradient)
    return ddp


def micro_batch(
    model: nn.Linear, rows: int, step: int, rank: int, which: int
) -> tuple[Tensor, Tensor]:
    """Images and labels for the model; no micro-batch is like another one."""
    start = 5 * step + 3 * rank + 7 * which + 1
    numbers = torch.arange(rows * model.in_features, dtype=model.weight.dtype)
    images = torch.sin(numbers.reshape(rows, -1) * start) * (1 + rank)
    return images, (torch.arange(rows) + rank + which) % model.out_features


def gradients_sent_once(begin: Tensor, hint: str) -> Comparison:
    """Whether each gradient was sent once: as many bytes as the model's numbers `begin` have."""
    # But for the broadcasts in which DDP agrees on its buckets after a first backward
    return Comparison(
        hint,
        begin.nbytes,
        lambda obs: sum(row["bytes"] for row in obs.communication if row["op"] != "broadcast"),
        actual=lambda obs: (
            f"the right step, but rank {obs.rank} has sent {obs.value} bytes "
            f"({', '.join(obs.ops) or 'nothing'})"
        ),
        required="{expected} bytes on every rank, which are all gradients once",
    )
