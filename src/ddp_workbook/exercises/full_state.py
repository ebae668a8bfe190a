"""Return the whole state dict of a sharded model on rank 0, as a file for one process needs it.

`fully_shard` has cut the model into one piece for each rank. Your function is called on every rank.

- Rank 0 returns a dict with every entry of `model.state_dict()`, under the same names. Each value
  is a plain tensor on the CPU with all of its elements, in the shape and dtype of the parameter or
  buffer. The other ranks return an empty dict.
- Every parameter counts: trained, frozen or tied, even one with fewer rows than there are ranks.
- `fully_shard` does not cut buffers: each rank has its own. Save rank 0's.
- The model stays unchanged: afterwards its parameters are pieces again, with the same numbers.
- Only rank 0 has room for the whole model. On top of its pieces, any other rank never has more than
  half of the model's bytes at a time.
"""

import time
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, UntypedStorage, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ddp_workbook.exercises import Look, OnRanks, Seen, When, edit, in_words
from ddp_workbook.exercises.judging.same import same
from ddp_workbook.exercises.judging.snapshots import change, snapshot
from ddp_workbook.exercises.judging.unordered import Unordered

MINUTES = 12
HINTS = [
    "Look at the types of the values in model.state_dict(). DTensor comes from "
    "torch.distributed.tensor. Are all of the values DTensors?",
    "A DTensor has a method that returns the whole tensor. It is a collective: which ranks must "
    "call it, how often, and in which order?",
    "Go through the entries one by one on every rank. What does rank 0 do with a whole tensor, and "
    "what does another rank do with it before it gathers the next one?",
]


def full_state(model: nn.Module) -> dict[str, Tensor]:
    """Return every entry of the state dict as a whole tensor on the CPU on rank 0, {} elsewhere."""
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


class Sharded(NamedTuple):
    """One call: on how many ranks, and whether the model has run before."""

    ranks: int
    evaluated: bool


def numbers_of(call: Sharded) -> dict[str, Tensor]:
    """The state dict of rank 0's whole model: no number twice in a tensor."""
    values = {}
    for place, (name, zeros) in enumerate(Small().state_dict().items(), start=1):
        counted = (
            torch.arange(zeros.numel()).reshape(zeros.shape) + 10 * place + 300 * call.evaluated
        )
        if zeros.dtype == torch.bool:
            values[name] = counted % 2 == 0
        elif zeros.dtype == torch.int64:
            values[name] = counted + 2**53
        else:
            fine = 0.1 if zeros.dtype == torch.float64 else 0.25
            values[name] = ((counted % 100 + fine) * (1 - 2 * (counted % 2))).to(zeros.dtype)
    values["output.weight"] = values["position"]  # tied
    return dict(sorted(values.items()))


PARAMETERS = [name for name, _ in Small().named_parameters(remove_duplicate=False)]
BUFFERS = [name for name in Small().state_dict() if name not in PARAMETERS]
BYTES = sum(tensor.nbytes for tensor in Small().parameters())
LIMIT = BYTES // 2
# Seconds of a call to wait for memory to be freed: gloo's thread releases a buffer late.
PATIENCE, PAUSE = 0.3, 0.005


def sharded(call: Sharded, rank: int) -> tuple[nn.Module]:
    """The argument of a call; it remembers the state in which it must be afterwards."""
    Unordered.mixed = True  # a set of names has another order in each process
    model = Small()
    numbers = numbers_of(call)
    own = {name: numbers[name] + rank for name in BUFFERS if numbers[name].dtype != torch.bool}
    model.load_state_dict(numbers | own)
    mesh = init_device_mesh("cpu", (call.ranks,))
    for unit in model.units:
        fully_shard(unit, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.before = state_of(model)
    if call.evaluated:
        with torch.no_grad():
            model.eval()(torch.zeros(2, 8))
        model.train()
    return (model,)


class Counted(TorchDispatchMode):
    """Record the peak number of bytes in new tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, StorageWeakRef] = {}
        self.most, self.patience = 0, PATIENCE * (dist.get_rank() > 0)  # rank 0 may have all

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operator; add its new tensors to those of earlier ones that are still alive."""
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a DTensor: operators on its pieces come here as well
        result = func(*args, **(kwargs or {}))
        given = memory_of((args, kwargs))
        for key, memory in memory_of(result).items():
            if key not in given:
                self.made.setdefault(key, StorageWeakRef(memory))
        while self.bytes_now() > LIMIT and self.patience > 0:
            time.sleep(PAUSE)
            self.patience -= PAUSE
        self.most = max(self.most, self.bytes_now())
        return result

    def bytes_now(self) -> int:
        """Bytes of all live storages; FSDP frees one by resizing it to 0 and keeps the object."""
        left = {key: UntypedStorage._new_with_weak_ptr(ref.cdata) for key, ref in self.made.items()}
        self.made = {key: ref for key, ref in self.made.items() if left[key] is not None}
        return sum(storage.nbytes() for storage in left.values() if storage is not None)


def memory_of(values: Any) -> dict[int, UntypedStorage]:
    """The storages of all tensors in lists, tuples and dicts."""
    tensors = [one for one in tree_leaves(values) if isinstance(one, Tensor) and not one.is_meta]
    return {one.untyped_storage()._cdata: one.untyped_storage() for one in tensors}


def counted(function: Callable, model: Small) -> Any:
    """Call the reader's function, and note on the model how much memory it took."""
    with Counted() as memory:
        returned = function(model)
    model.most = memory.most
    return returned


class Form(NamedTuple):
    """What an entry of the dict is; of what is no tensor, the value in words."""

    kind: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""
    here: tuple[int, ...] = ()  # the shape of what this rank has of it

    def __str__(self) -> str:
        if not self.dtype:
            return self.kind
        part = f", of which {self.here} is here" if self.kind == "a DTensor" else ""
        return f"{self.kind} {self.shape} of {self.dtype} on {self.device}{part}"


def form(value: Any) -> Form:
    """The form of an entry."""
    if not isinstance(value, Tensor):
        return Form(in_words(value))
    kind = "a DTensor" if isinstance(value, DTensor) else "a tensor"
    dtype = str(value.dtype).removeprefix("torch.")
    return Form(kind, tuple(value.shape), dtype, value.device.type, tuple(local(value).shape))


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank has, as a plain tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def state_of(model: Small) -> dict[str, Any]:
    """All that must be the same after the call; of the parameters this rank's pieces."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    modes = {f"{name}.training": one.training for name, one in model.named_modules()}
    return {name: snapshot(local(one)) for name, one in tensors.items()} | modes


def seen_of(returned: object, model: Small) -> dict:
    """What came back, and the state of the model afterwards."""
    state = returned if isinstance(returned, dict) else {}
    state = {str(name): state[name] for name in sorted(state, key=str)}  # any order is right
    whole = [name for name, one in model.named_parameters() if not isinstance(one, DTensor)]
    return {
        "kind": "a dict" if isinstance(returned, dict) else in_words(returned),
        "names": list(state),
        "forms": {name: form(value) for name, value in state.items()},
        "values": {name: local(one) for name, one in state.items() if isinstance(one, Tensor)},
        "whole": whole,
        "changed": "" if whole else change("model", model.before, state_of(model)),
        "most": model.most,
    }


def names_in_words(seen: Seen) -> str:
    """How many entries came, which are missing, and which do not belong there."""
    missing, strange = ({*seen.right} - {*seen.value}, {*seen.value} - {*seen.right})
    without = f", without {in_words(sorted(missing))}" * bool(missing)
    return f"{len(seen.value)} entries{without}" + f", with {in_words(sorted(strange))}" * bool(
        strange
    )


def forms(holds: Callable[[Form, Form], bool]) -> When:
    """If this is so for an entry and what it must be."""
    return When(lambda seen: any(holds(seen.value[name], seen.right[name]) for name in seen.right))


def without(*names: str) -> When:
    """If exactly these entries are missing."""
    return When(lambda seen: {*seen.right} - {*seen.value} == {*names})


LOOKS = [
    Look(
        of=lambda seen: seen.actual["kind"],
        right="a dict",
        mistakes={
            "Rank 0 has its dict. What do the other ranks return?": When(
                lambda seen: seen.everyone[0].value == "a dict"
            ),
        },
        otherwise="Does every path through the function return a dict of tensors?",
        required="a dict on every rank",
        words=str,
    ),
    Look(
        of=lambda seen: seen.actual["names"],
        mistakes={
            "Every rank must call, but which one writes the file? The others keep nothing.": When(
                lambda seen: seen.rank
            ),
            "On which rank is the result? The others return an empty dict.": When(
                lambda seen: not seen.value and any(one.value for one in seen.everyone)
            ),
            "This entry is not saved by model.state_dict(). Which list do you go through?": When(
                lambda seen: "scratch" in seen.value
            ),
            "Some names are not those of the state dict. Under which name would a model look for "
            "the entry?": When(lambda seen: {*seen.value} - {*seen.right}),
            "The parameters are there. Which entries of a state dict are not parameters?": (
                without(*BUFFERS)
            ),
            "A frozen parameter is part of the model, too. Which line skips it?": without("frozen"),
            "One weight has two names, and a model that loads the file asks for both.": When(
                lambda seen: len({"position", "output.weight"} & {*seen.value}) == 1
            ),
        },
        otherwise="Compare the names with those of model.state_dict(). Which path leaves some out?",
        actual=lambda seen: f"a dict with {names_in_words(seen)} on rank {seen.rank}",
        required="all entries of model.state_dict() on rank 0, and none on the other ranks",
    ),
    Look(
        of=lambda seen: seen.actual["forms"],
        mistakes={
            "A state dict holds tensors. Which line makes something else of this one?": forms(
                lambda actual, right: actual.kind not in ("a tensor", "a DTensor")
            ),
            "This is still a DTensor, which holds only its piece. What makes it whole?": forms(
                lambda actual, right: actual.kind == "a DTensor" and actual.here != actual.shape
            ),
            "This is whole, but a DTensor, which needs the group of ranks. What makes a plain "
            "tensor of it?": forms(lambda actual, right: actual.kind == "a DTensor"),
            "The number of elements is right, in one dimension. Which line flattens the "
            "tensor?": forms(
                lambda actual, right: (
                    actual.shape != right.shape and actual.shape == (prod(right.shape),)
                )
            ),
            "It is longer than the parameter. Some ranks have fewer rows than rank 0: what is in "
            "their place, and which line removes the padding?": forms(
                lambda actual, right: (
                    actual.shape[1:] == right.shape[1:] and actual.shape > right.shape
                )
            ),
            "The dtype has changed on the way. Does every number survive that?": forms(
                lambda actual, right: actual.shape == right.shape and actual.dtype != right.dtype
            ),
        },
        otherwise="Follow one parameter: how many of its rows does each rank have, and what puts "
        "them together?",
        actual="{part}: {value} {where}",
        required="{right}",
        words=str,
    ),
    Look(
        of=lambda seen: seen.actual["values"],
        right=lambda call, rank: numbers_of(call) if rank == 0 else {},
        mistakes={
            "The buffers are not rank 0's own. Which line calculates with them, or takes "
            "another's?": When(
                lambda seen: all(same(seen.value[one], seen.right[one]) for one in PARAMETERS)
            ),
        },
        otherwise="Compare the first wrong tensor with the pieces, row by row.",
        actual="{part}: {value} {where}",
        required="{right}",
    ),
    Look(
        of=lambda seen: seen.actual["whole"],
        right=[],
        otherwise="The model is left unsharded: this rank holds all of these parameters. What "
        "shards them again?",
        actual=lambda seen: (
            f"after the call, {len(seen.value)} parameters such as {seen.value[0]} are whole on "
            f"rank {seen.rank}"
        ),
        required="the model as it was: a piece of each parameter on each rank",
    ),
    Look(
        of=lambda seen: seen.actual["changed"],
        right="",
        otherwise="Which line changes the model?",
        actual="your function changed {value} on rank {rank}",
        required="the model as it was",
        words=str,
    ),
    Look(
        of=lambda seen: seen.actual["most"] if seen.rank else 0,
        right=LIMIT,
        mistakes={
            "That is at least as much as the whole model. When does this rank need one whole "
            "tensor, and when the next?": When(lambda seen: seen.value >= BYTES),
        },
        otherwise="How many whole tensors does this rank have at the same time? It needs to keep "
        "none.",
        actual="the right dicts; rank {rank} had up to {value} bytes of new tensors at a time",
        required=f"{{right}} at most: half of the model's {BYTES:,} bytes",
        same=lambda actual, right: (actual <= LIMIT) == (right <= LIMIT),
    ),
]
CHECK = OnRanks(
    cases=lambda size: [Sharded(size, False)] * (size == 4) + [Sharded(size, True)],
    called=lambda call: (
        f"full_state(model), the model in pieces on {call.ranks} rank{'s' * (call.ranks > 1)}"
        + " after an evaluation" * call.evaluated
    ),
    given=sharded,
    caller=counted,
    observe=seen_of,
    looks=LOOKS,
    mistakes={
        "These are rank 0's own rows. Where do the other rows come from?": edit(
            "value.full_tensor()", "value.to_local()"
        ),
        "The rows are right, their order is not. In which order must the pieces be joined?": edit(
            "value.full_tensor()",
            "torch.cat(value.full_tensor().chunk(dist.get_world_size())[::-1])",
        ),
        "Some rows are zeros, which no rank has. How many rows does each rank have?": edit(
            "value = value.full_tensor()",
            "own, value = value.to_local(), torch.zeros(value.shape, dtype=value.dtype)\n"
            "            value[: len(own)] = own",
        ),
    },
    errors={
        "hangs": "No rank has a whole tensor. Which of your calls needs the other ranks, and do "
        "all ranks make it, equally often and in the same order?",
        "no attribute 'full_tensor'": "Not every entry is cut into pieces. Of which type is a "
        "buffer, or a parameter after an evaluation, and how do you tell them apart?",
        "SIGABRT": "Tensors of different sizes met in one collective. How many rows does each "
        "rank's piece have, and do all ranks go through the entries in the same order?",
        "mixed torch.Tensor and DTensor": "A piece met a plain tensor. Which of the two should be "
        "whole here?",
    },
    proves="at 1 to 4 ranks rank 0 has every entry whole, uneven rows, frozen and tied ones "
    "included; the others have nothing, and never held more than half of the model",
)
