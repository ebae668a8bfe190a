"""Give every rank the model of rank 0, in place.

Each rank has built the same model, with different numbers in it. Your function is called on all
ranks, once for each model, before training begins. The optimizer exists already and holds the
parameters.

- Afterwards, every parameter and every buffer has rank 0's value on every rank, bit for bit.
- This includes frozen parameters and every buffer. One buffer, BatchNorm's counter, is an integer.
  All buffers are persistent, so `state_dict()` has them.
- The model keeps its Parameter objects. Its parameters and buffers keep their memory, so that
  `data_ptr()` does not change, and `requires_grad` stays as it was.
- One parameter is channels_last, so it is not contiguous, and one is a view into a larger tensor.
- You may send as many messages as you like, with any of torch.distributed's functions.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, Pattern, body, edit
from ddp_workbook.judging.set_order import RankOrderedSet

MINUTES = 10
HINTS = [
    "One collective sends the numbers of one rank, its source, to all others. Which ranks call "
    "it, how often, and which rank is the source?",
    "model.parameters() and model.buffers() together are the whole model, in the same order on "
    "all ranks.",
    "A collective fills the memory of the tensor that you give it. parameter.detach() is a tensor "
    "with the parameter's memory that autograd does not record.",
]


def broadcast_parameters(model: nn.Module) -> None:
    """Fill every parameter and every buffer with rank 0's values, in place, on every rank."""
    ### BEGIN SOLUTION
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src=0)
    ### END SOLUTION


class Small(nn.Module):
    """Parameters and buffers of several dtypes, with more than one way to lie in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(2, 2, 1, 2).to(memory_format=torch.channels_last))
        self.window = nn.Parameter(torch.zeros(12)[5:8])
        self.frozen = nn.Parameter(torch.zeros(5), requires_grad=False)
        self.inner = nn.Linear(1, 4, dtype=torch.float64)
        self.norm = nn.BatchNorm1d(2)

    def content(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return dict([*self.named_parameters(), *self.named_buffers()])


CONTENT = Small().content()


def values_of(call: int, rank: int) -> dict[str, Tensor]:
    """What `rank` holds: every rank has other numbers, and some need all of their bits."""
    values = {}
    for number, (name, tensor) in enumerate(CONTENT.items(), start=1):
        indices = torch.arange(tensor.numel()).reshape(tensor.shape)
        more = {torch.float64: 0.1, torch.int64: 2**53}.get(tensor.dtype, 0.25)
        signs = 1 - 2 * ((indices + call) % 2)  # so that rank 0 has no largest and no smallest one
        values[name] = (indices + 10 * number).to(tensor.dtype).add(more) * signs * 2**rank
    odd = [-0.0, torch.nan, torch.inf, 1.5]  # rank 0 has the first one, rank 1 the next
    values["kernel"][0, 0, 0] = torch.tensor([odd[rank], odd[0] if rank == 2 else 2.5])
    return values


def make_args(case: list[dict], rank: int) -> tuple[Small]:
    """The argument of a call: a model that remembers its tensors and their memory."""
    RankOrderedSet.reverse_on_odd_ranks = True  # a set of names has another order in each process
    model = Small()
    for name, value in case[rank].items():
        model.content()[name].data.copy_(value)
    model.originals = {  # the second of each keeps the memory from being used again
        name: (tensor, tensor.detach(), tensor.data_ptr(), tensor.requires_grad)
        for name, tensor in model.content().items()
    }
    return (model,)


def observe(_: None, model: Small) -> dict:
    """What a call has left of the model."""
    now = model.content()
    return {
        "value": {name: now.get(name) for name in CONTENT},
        "change": {
            name: change(now.get(name), *original) for name, original in model.originals.items()
        },
    }


def change(
    now: Tensor | None, original: Tensor, _: Tensor, address: int, requires_grad: bool
) -> str:
    """What is different about a tensor, apart from its values; "" if nothing is."""
    if now is not original and isinstance(original, nn.Parameter):
        return "is another Parameter than before"
    if now is None or now.data_ptr() != address:
        return "lies in other memory than before"
    return "" if now.requires_grad == requires_grad else f"has requires_grad={now.requires_grad}"


def identical(actual: Any, expected: dict | Tensor) -> bool:
    """Equal in dtype, shape and every bit; one nan is as good as another."""
    if isinstance(expected, dict):
        return all(identical(actual[name], expected[name]) for name in expected)
    if (
        not isinstance(actual, Tensor)
        or actual.dtype != expected.dtype
        or actual.shape != expected.shape
    ):
        return False
    equal = (actual == expected) & (actual.signbit() == expected.signbit())
    return bool((equal | (actual.isnan() & expected.isnan())).all())


def first_wrong(obs: Observation) -> str:
    """The name of the first tensor that is wrong."""
    return next(name for name in CONTENT if not identical(obs.value[name], obs.expected[name]))


def is_skipped(obs: Observation) -> bool:
    """Whether the first tensor that is wrong is as it was, and another one is not."""
    own, name = obs.case[obs.rank], first_wrong(obs)
    return identical(obs.value[name], own[name]) and not identical(obs.value, own)


def describe_values(case: list[dict], name: str) -> str:
    """ ", where frozen was [1, 2] on rank 0, [2, 4] on rank 1", of one tensor."""
    texts = ", ".join(f"{own[name].tolist()} on rank {r}" for r, own in enumerate(case) if name)
    return f", where {name} was {texts}" if name else ""


ALL_TENSORS = "(*model.parameters(), *model.buffers())"
BROADCAST = "dist.broadcast(tensor.detach(), src=0)"

CHECK = DistributedCheck(
    cases=lambda size: [[values_of(call, rank) for rank in range(size)] for call in (0, 1)],
    call_text=lambda case, name: f"broadcast_parameters(model){describe_values(case, name)}",
    make_args=make_args,
    observe=observe,
    compare={
        "change": Comparison(
            "The optimizer, and whatever else holds a tensor, goes on with the old one. "
            "Where do the numbers that arrive go, and which line changes more than numbers?",
            dict.fromkeys(CONTENT, ""),
            actual="{part} {value} on rank {rank}",
            required="the same tensor as before: only its numbers change",
        ),
        "value": Comparison(
            "Which rank's numbers are in this tensor, and what has your function "
            "calculated with them?",
            lambda case: case[0],
            equal=identical,
        ),
    },
    mistakes={
        "No rank has sent anything. Which tensors does your function find in the model?": (
            body("pass")
        ),
        "Something came to this rank, but not into its model. Which tensor was filled?": edit(
            ".detach()", ".detach().clone()"
        ),
        "Only the buffers are wrong. A buffer is no parameter: which of the model's lists holds "
        "it?": edit(ALL_TENSORS, "model.parameters()"),
        "A frozen parameter is a part of the model, too, and no training step will ever make it "
        "equal. Which line skips it?": edit(
            "*model.parameters()", "*(p for p in model.parameters() if p.requires_grad)"
        ),
        "Only the counter is wrong. It is an integer without dimensions: which line skips it?": (
            edit(ALL_TENSORS, f"filter(torch.is_floating_point, {ALL_TENSORS})")
        ),
        "This weight is channels_last, so it is not contiguous. Is what you hand to the collective "
        "its memory, or a copy?": edit(".detach()", ".detach().contiguous()"),
        "This is nearly rank 0's value. In which dtype has it travelled?": edit(
            BROADCAST,
            "message = tensor.detach().float()\n        dist.broadcast(message, src=0)\n        "
            "tensor.detach().copy_(message)",
        ),
        "Which line calculates with the values? 0.0 has other bits than -0.0, and nan times 0 is "
        "nan.": [
            edit(BROADCAST, f"{line}\n        dist.all_reduce(tensor.detach())")
            for line in (
                "tensor.detach().mul_(dist.get_rank() == 0)",
                "tensor.detach().copy_(0 if dist.get_rank() else tensor.detach().clone())",
            )
        ],
        "These are the numbers of the last rank. Who is the source, on every rank?": edit(
            "src=0", "src=dist.get_world_size() - 1"
        ),
        "This is the sum or the mean over the ranks. The task asks for rank 0's own numbers.": [
            edit(
                BROADCAST,
                f"if {condition}:\n"
                "            dist.all_reduce(tensor.detach())\n"
                f"            tensor.detach().copy_({result})\n"
                f"        else:\n            {BROADCAST}",
            )
            for condition in (
                "isinstance(tensor, nn.Parameter)",
                "tensor.is_floating_point()",
                "True",
            )
            for result in ("tensor", "tensor / dist.get_world_size()")
        ],
        "Something else has come to rank {rank}, but not this. Which line skips it?": Pattern(
            is_skipped, "value"
        ),
    },
    errors={
        "leaf Variable": "You fill a parameter. How do you keep autograd from recording that?",
    },
    on_pass="every parameter and buffer has rank 0's values, bit for bit and in its old memory, at "
    "1 to 4 ranks",
)
