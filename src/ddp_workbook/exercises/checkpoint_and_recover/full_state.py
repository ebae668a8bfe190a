"""Return the full state dict of a sharded model on rank 0, as a file for one process needs it.

`fully_shard` has sharded the model over the ranks. Your function is called on every rank.

- Rank 0 returns a dict with every entry of `model.state_dict()`, under the same names. Each value
  is a plain tensor on the CPU with all of its elements, in the shape and dtype of the parameter or
  buffer. The other ranks return an empty dict.
- Every parameter counts: trained, frozen or tied, even one with fewer rows than there are ranks.
- `fully_shard` does not shard buffers: each rank has its own. Save rank 0's.
- The model stays unchanged: afterwards its parameters are shards again, with the same numbers.
- Only rank 0 has room for the full model. On top of its shards, any other rank never has more than
  half of the model's bytes at a time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ddp_workbook.judging import (
    Comparison,
    DistributedCheck,
    Observation,
    Pattern,
    at_most,
    edit,
    in_words,
)
from ddp_workbook.judging.memory import PeakMemoryMode
from ddp_workbook.judging.set_order import RankOrderedSet
from ddp_workbook.judging.snapshots import change, snapshot

MINUTES = 12
HINTS = [
    "Look at the types of the values in model.state_dict(). DTensor comes from "
    "torch.distributed.tensor. Are all of the values DTensors?",
    "A DTensor has a method that returns the full tensor. It is a collective: which ranks must "
    "call it, how often, and in which order?",
    "Go through the entries one by one on every rank. What does rank 0 do with a full tensor, and "
    "what does another rank do with it before it gathers the next one?",
]


def full_state(model: nn.Module) -> dict[str, Tensor]:
    """Return every entry of the state dict as a full tensor on the CPU on rank 0, {} elsewhere."""
    ### BEGIN SOLUTION
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            value = value.full_tensor()  # an all-gather: on every rank
        if dist.get_rank() == 0:
            state[name] = value.cpu()
    return state
    ### END SOLUTION


class Small(nn.Module):
    """Units of several dtypes; some rows do not divide, one parameter has fewer rows than ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.zeros(7, 8))
        self.scale = nn.Parameter(torch.zeros(2))
        self.frozen = nn.Parameter(torch.zeros(6, 8), requires_grad=False)
        self.units = nn.ModuleList(
            [
                *(nn.Linear(8, 8, bias=False) for _ in range(6)),
                nn.Linear(8, 5, dtype=torch.float64),
                nn.Linear(8, 9, dtype=torch.bfloat16),
                nn.BatchNorm1d(8),
            ]
        )
        self.output = nn.Linear(8, 7, bias=False)
        self.output.weight = self.position  # tied
        self.register_buffer("mask", torch.zeros(3, dtype=torch.bool))
        self.register_buffer("scratch", torch.zeros(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Uses the root's parameters, which fully_shard then leaves unsharded."""
        return self.output(x + self.frozen[0] * self.scale[0])


class ShardedModel(NamedTuple):
    """One call: on how many ranks, and whether the model has run before."""

    ranks: int
    evaluated: bool


def numbers_of(call: ShardedModel) -> dict[str, Tensor]:
    """The state dict of rank 0's whole model: no number twice in a tensor."""
    values = {}
    for place, (name, tensor) in enumerate(Small().state_dict().items(), start=1):
        numbers = (
            torch.arange(tensor.numel()).reshape(tensor.shape) + 10 * place + 300 * call.evaluated
        )
        if tensor.dtype == torch.bool:
            values[name] = numbers % 2 == 0
        elif tensor.dtype == torch.int64:
            values[name] = numbers + 2**53
        else:
            fraction = 0.1 if tensor.dtype == torch.float64 else 0.25
            values[name] = ((numbers % 100 + fraction) * (1 - 2 * (numbers % 2))).to(tensor.dtype)
    values["output.weight"] = values["position"]  # tied
    return dict(sorted(values.items()))


PARAMETERS = [name for name, _ in Small().named_parameters(remove_duplicate=False)]
BUFFERS = [name for name in Small().state_dict() if name not in PARAMETERS]
MODEL_BYTES = sum(tensor.nbytes for tensor in Small().parameters())
LIMIT_BYTES = MODEL_BYTES // 2
PATIENCE_S = 0.3  # seconds of a call to wait for memory to be freed: gloo's thread does it late


def make_args(call: ShardedModel, rank: int) -> tuple[nn.Module]:
    """The argument of a call; it remembers the state in which it must be afterwards."""
    RankOrderedSet.reverse_on_odd_ranks = True  # a set of names has another order in each process
    model = Small()
    numbers = numbers_of(call)
    own = {name: numbers[name] + rank for name in BUFFERS if numbers[name].dtype != torch.bool}
    model.load_state_dict(numbers | own)
    mesh = init_device_mesh("cpu", (call.ranks,))
    for unit in model.units:
        fully_shard(unit, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.state_before = state_of(model)
    if call.evaluated:
        with torch.no_grad():
            model.eval()(torch.zeros(2, 8))
        model.train()
    return (model,)


def call_and_measure(function: Callable, model: Small) -> Any:
    """Call the reader's function, and note on the model how much memory it took."""
    with PeakMemoryMode(
        LIMIT_BYTES, PATIENCE_S * (dist.get_rank() > 0)
    ) as memory:  # rank 0 may have all
        returned = function(model)
    model.peak_bytes = memory.peak_bytes
    return returned


def form(value: Any) -> str:
    """What an entry of the dict is, in words."""
    if not isinstance(value, Tensor):
        return in_words(value)
    kind = "a DTensor" if isinstance(value, DTensor) else "a tensor"
    part = f", of which {tuple(local(value).shape)} is here" if isinstance(value, DTensor) else ""
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{kind} {tuple(value.shape)} of {dtype} on {value.device.type}{part}"


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank has, as a plain tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def state_of(model: Small) -> dict[str, Any]:
    """All that must be the same after the call; of the parameters this rank's shards."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    modes = {f"{name}.training": module.training for name, module in model.named_modules()}
    return {name: snapshot(local(tensor)) for name, tensor in tensors.items()} | modes


def observe(returned: object, model: Small) -> dict:
    """What came back, and the state of the model afterwards."""
    state = returned if isinstance(returned, dict) else {}
    state = {str(name): state[name] for name in sorted(state, key=str)}  # any order is right
    unsharded = [
        name for name, parameter in model.named_parameters() if not isinstance(parameter, DTensor)
    ]
    return {
        "kind": "a dict" if isinstance(returned, dict) else in_words(returned),
        "names": list(state),
        "type": {name: form(value) for name, value in state.items()},
        "value": {
            name: local(parameter)
            for name, parameter in state.items()
            if isinstance(parameter, Tensor)
        },
        "unsharded": unsharded,
        "change": "" if unsharded else change("model", model.state_before, state_of(model)),
        "bytes of new tensors at a time": model.peak_bytes if dist.get_rank() else 0,
    }


def names_in_words(obs: Observation) -> str:
    """How many entries came, which are missing, and which do not belong there."""
    missing, extra = ({*obs.expected} - {*obs.value}, {*obs.value} - {*obs.expected})
    without = f", without {in_words(sorted(missing))}" if missing else ""
    with_extra = f", with {in_words(sorted(extra))}" if extra else ""
    return f"{len(obs.value)} entries{without}{with_extra}"


RANK, END = "dist.get_rank() == 0", "  # an all-gather: on every rank"
CHECK = DistributedCheck(
    cases=lambda size: [
        ShardedModel(size, evaluated) for evaluated in ((False, True) if size == 4 else (True,))
    ],
    call_text=lambda call: (
        f"full_state(model), the model in shards on {call.ranks} rank{'s' * (call.ranks > 1)}"
        + (" after an evaluation" if call.evaluated else "")
    ),
    make_args=make_args,
    caller=call_and_measure,
    observe=observe,
    compare={
        "kind": Comparison(
            "Does every path through the function return a dict of tensors?",
            "a dict",
            required="a dict on every rank",
        ),
        "names": Comparison(
            "Compare the names with those of model.state_dict(). Which path leaves some out?",
            actual=lambda obs: f"a dict with {names_in_words(obs)} on rank {obs.rank}",
            required="all entries of model.state_dict() on rank 0, and none on the other ranks",
        ),
        "type": (
            "Each entry is a tensor of the parameter's own dtype. How many of its rows does "
            "each rank have, and what gathers them, without padding?"
        ),
        "value": Comparison(
            "Compare the first wrong tensor with the shards, row by row.",
            lambda call, rank: numbers_of(call) if rank == 0 else {},
        ),
        "unsharded": Comparison(
            "The model is left unsharded: this rank holds all of these parameters. What "
            "shards them again?",
            [],
            actual=lambda obs: (
                f"after the call, {len(obs.value)} parameters such as {obs.value[0]} are gathered "
                f"on rank {obs.rank}"
            ),
            required="the model as it was: a shard of each parameter on each rank",
        ),
        "change": Comparison(
            "Which line changes the model?",
            "",
            actual="your function changed {value} on rank {rank}",
            required="the model as it was",
        ),
        "bytes of new tensors at a time": at_most(
            "When does this rank need one full tensor, and when the next? It needs to keep none.",
            LIMIT_BYTES,
            required=f"{{expected}} at most: half of the model's {MODEL_BYTES:,} bytes",
        ),
    },
    mistakes={
        "These are rank 0's own rows. Where do the other rows come from?": edit(
            "value.full_tensor()", "value.to_local()"
        ),
        "The buffers are not rank 0's own. Which line calculates with them, or takes "
        "another's?": edit(
            END,
            f"{END}\n        else:\n"
            "            dist.broadcast(value := value.clone(), src=dist.get_world_size() - 1)",
        ),
        "The parameters are there. Which entries of a state dict are not parameters?": edit(
            RANK, f"{RANK} and name in dict(model.named_parameters(remove_duplicate=False))"
        ),
        "A frozen parameter is part of the model, too. Which line skips it?": edit(
            RANK, f'{RANK} and name != "frozen"'
        ),
        "One weight has two names, and a model that loads the file asks for both.": [
            edit(RANK, f'{RANK} and name != "{name}"') for name in ("output.weight", "position")
        ],
        "The dtype has changed on the way. Does every number survive that?": edit(
            "value.cpu()", "value.cpu().float()"
        ),
        "The rows are right, their order is not. In which order must the shards be joined?": edit(
            "value.full_tensor()",
            "torch.cat(value.full_tensor().chunk(dist.get_world_size())[::-1])",
        ),
        "Some rows are zeros, which no rank has. How many rows does each rank have?": edit(
            "value = value.full_tensor()",
            "own, value = value.to_local(), torch.zeros(value.shape, dtype=value.dtype)\n"
            "            value[: len(own)] = own",
        ),
        "Rank 0 has its dict. What do the other ranks return?": Pattern(
            lambda obs: obs.all_ranks[0].value == "a dict", "kind"
        ),
        "Every rank makes the calls, but only one keeps the result, because it writes the "
        "file. Which one? The others return an empty dict.": Pattern(
            lambda obs: obs.rank or (not obs.value and any(o.value for o in obs.all_ranks)), "names"
        ),
        "Some names are not those of model.state_dict(), which leaves out buffers that are not "
        "persistent. Under which name would a model look for the entry?": Pattern(
            lambda obs: {*obs.value} - {*obs.expected}, "names"
        ),
        "This is still a DTensor, which holds only a shard, or needs the group of ranks. What "
        "makes a full, plain tensor of it?": Pattern(
            lambda obs: any("DTensor" in form_text for form_text in obs.value.values()), "type"
        ),
    },
    errors={
        "hangs": "No rank has a full tensor. Which of your calls needs the other ranks, and do "
        "all ranks make it, equally often and in the same order?",
        "no attribute 'full_tensor'": "Not every entry is a shard. Of which type is a "
        "buffer, or a parameter after an evaluation, and how do you tell them apart?",
        "SIGABRT": "Tensors of different sizes met in one collective. How many rows does each "
        "rank's shard have, and do all ranks go through the entries in the same order?",
        "mixed torch.Tensor and DTensor": "A shard met a plain tensor. Which of the two should be "
        "unsharded here?",
    },
    on_pass="at 1 to 4 ranks rank 0 has every entry in full, uneven rows, frozen and tied ones "
    "included; the others have nothing, and never held more than half of the model",
)
