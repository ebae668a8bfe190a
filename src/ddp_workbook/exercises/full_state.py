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
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, UntypedStorage, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_workbook.exercises import Look, OnRanks, Seen, When, in_words
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
                *(nn.Linear(8, 8, bias=False) for _ in range(8)),
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


class Call(NamedTuple):
    """One call: on how many ranks, which numbers, and what the model has done before."""

    ranks: int
    number: int
    evaluated: bool = False


def numbers_of(call: Call) -> dict[str, Tensor]:
    """The state dict of rank 0's whole model: no number twice in a tensor."""
    values = {}
    for place, (name, zeros) in enumerate(Small().state_dict().items(), start=1):
        counted = torch.arange(zeros.numel()).reshape(zeros.shape) + 10 * place + 300 * call.number
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


def own_numbers(call: Call, rank: int) -> dict[str, Tensor]:
    """The same, with this rank's own buffers."""
    return {
        name: value + rank if name in BUFFERS and value.dtype != torch.bool else value
        for name, value in numbers_of(call).items()
    }


def sharded(call: Call, rank: int) -> tuple[nn.Module]:
    """The argument of a call; it remembers this rank's pieces."""
    Unordered.mixed = True  # a set of names has another order in each process
    model = Small()
    model.load_state_dict(own_numbers(call, rank))
    mesh = init_device_mesh("cpu", (call.ranks,))
    for unit in model.units:
        fully_shard(unit, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.pieces = {name: p.to_local().clone() for name, p in model.named_parameters()}
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
        self.most, self.patience = 0, PATIENCE

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operator; add its new tensors to those of earlier ones that are still alive."""
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a DTensor: operators on its pieces come here as well
        result = func(*args, **(kwargs or {}))
        given = {memory_of(one) for one in tensors_in((args, kwargs))}
        for one in tensors_in(result):
            if memory_of(one) not in given and not one.is_meta:
                self.made.setdefault(memory_of(one), StorageWeakRef(one.untyped_storage()))
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


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All plain tensors in lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(one)


def memory_of(tensor: Tensor) -> int:
    """An identifier of a tensor's storage."""
    return tensor.untyped_storage()._cdata


def counted(function: Callable, model: Small) -> Any:
    """Call the reader's function, and note on the model how much memory it took."""
    with Counted() as memory:
        returned = function(model)
    model.most = memory.most
    return returned


def seen_of(returned: object, model: Small) -> dict:
    """What came back, and the state of the model afterwards."""
    state = returned if isinstance(returned, dict) else {}
    state = {str(name): state[name] for name in sorted(state, key=str)}  # any order is right
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    return {
        "kind": "a dict" if isinstance(returned, dict) else in_words(returned),
        "names": list(state),
        "forms": {name: form(value) for name, value in state.items()},
        "values": {name: local(value) for name, value in tensors.items()},
        "model": {name: now(dict(model.named_parameters()).get(name), piece)
                  for name, piece in model.pieces.items()},
        "most": model.most,
    }  # fmt: skip


TENSORS = ("a tensor (", "a DTensor, ")  # how `form` begins


def form(tensor: Any) -> str:
    """The kind, shape, dtype and device of a tensor in words; else what it is instead."""
    if not isinstance(tensor, Tensor):
        return in_words(tensor)
    if isinstance(tensor, DTensor):
        return f"a DTensor, of which {tuple(tensor.to_local().shape)} is here"
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"a tensor {tuple(tensor.shape)} of {dtype} on {tensor.device.type}"


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank has, as a plain tensor."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def now(parameter: Tensor | None, piece: Tensor) -> str:
    """How a parameter has changed; "" if it has not."""
    if not isinstance(parameter, DTensor):
        return "is whole"
    same = torch.equal(parameter.to_local(), piece)
    return "" if same else "has other numbers"


def on_rank_0(made: Callable[[Call], Any], elsewhere: Any) -> Callable:
    """`made` on rank 0, `elsewhere` on the others."""
    return lambda call, rank: made(call) if rank == 0 else elsewhere


def names_where(keep: Callable[[str], bool]) -> Callable:
    """The mistake of skipping some entries."""
    return on_rank_0(lambda call: sorted(filter(keep, numbers_of(call))), [])


def is_trained(name: str) -> bool:
    """Whether an entry is a parameter that requires a gradient."""
    return name in PARAMETERS and name != "frozen"


def first_wrong(seen: Seen) -> tuple[Tensor, Tensor]:
    """The first value that is wrong, and the right one."""
    for name, right in seen.right.items():
        if not identical(seen.value.get(name), right):
            return seen.value[name], right
    raise LookupError("all are right")


def identical(one: Any, other: Any) -> bool:
    """Equal in dtype, shape and every number; for dicts, every tensor of `other`."""
    if isinstance(other, dict):
        return all(identical(one.get(name), other[name]) for name in other)
    alike = isinstance(one, Tensor) and one.dtype == other.dtype and one.shape == other.shape
    return alike and torch.equal(one, other)


def in_call(call: Call) -> str:
    """The call in words."""
    after = " after an evaluation" if call.evaluated else ""
    ranks = f"{call.ranks} rank{'s' * (call.ranks > 1)}"
    return f"full_state(model), the model in pieces on {ranks}{after}"


def forms_of(call: Call) -> dict[str, str]:
    """How each entry must look."""
    return {name: form(value) for name, value in numbers_of(call).items()}


def names_in_words(seen: Seen) -> str:
    """How many entries came, which are missing, and which do not belong there."""
    missing, strange = (
        sorted({*a} - {*b}) for a, b in ((seen.right, seen.value), (seen.value, seen.right))
    )
    words = [f"{len(seen.value)} entries"]
    words += [f"without {in_words(missing[:3])[1:-1]}{', …' * (len(missing) > 3)}"] * bool(missing)
    words += [f"with {in_words(strange[:3])[1:-1]}{', …' * (len(strange) > 3)}"] * bool(strange)
    return ", ".join(words)


def row_in_words(seen: Seen, which: int) -> str:
    """The first row that is wrong, as it came (0) or as it must be (1)."""
    pair = first_wrong(seen)
    name = next(name for name, right in seen.right.items() if right is pair[1])
    if not pair[1].dim():
        return f"{name} is {in_words(pair[which])} on rank {seen.rank}"
    row = next(i for i in range(len(pair[1])) if not torch.equal(pair[0][i], pair[1][i]))
    return f"row {row} of {name} is {in_words(pair[which][row])} on rank {seen.rank}"


def shape_in(words: str) -> str:
    """The shape in the words of `form`."""
    return words.partition(" of ")[0]


def shapes(forms: dict[str, str]) -> dict[str, str]:
    """The shapes of all entries."""
    return {name: shape_in(words) for name, words in forms.items()}


def rows(seen: Seen, name: str) -> tuple[int, int]:
    """How many rows an entry has, and how many it must have."""
    came, right = seen.came["values"].get(name), numbers_of(seen.case)[name]
    return (len(came) if isinstance(came, Tensor) and came.dim() else 0), len(right)


def has_own_rows_only(seen: Seen) -> bool:
    """Whether every parameter has just the rows of rank 0's piece."""
    cut = {name: -(-len(numbers_of(seen.case)[name]) // seen.size) for name in PARAMETERS}
    return seen.rank == 0 < seen.size - 1 and all(
        rows(seen, name)[0] == cut[name] for name in PARAMETERS
    )


def identical_flat(one: Any, other: Tensor) -> bool:
    """Whether two tensors have the same numbers in the same order."""
    return isinstance(one, Tensor) and identical(one.flatten(), other.flatten())


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same numbers in any order."""
    return one.shape == other.shape and torch.equal(
        one.flatten().sort().values, other.flatten().sort().values
    )


KIND = Look(
    of=lambda seen: seen.came["kind"],
    right="a dict",
    mistakes={
        "Rank 0 has its dict. What do the other ranks return?": When(
            lambda seen: seen.rank and seen.value == "None"
        ),
    },
    otherwise="Does every path through the function return a dict of tensors?",
    required="a dict on every rank",
    words=str,
)
NAMES = Look(
    of=lambda seen: seen.came["names"],
    right=names_where(lambda name: True),
    mistakes={
        "The parameters are there. Which entries of a state dict are not parameters?": names_where(
            lambda name: name in PARAMETERS
        ),
        "The buffers are missing, and so is one of the two names of a tied weight. Which list do "
        "you go through?": names_where(lambda name: name in PARAMETERS and name != "output.weight"),
        "A frozen parameter is part of the model, too. Which line skips it?": names_where(
            lambda name: name != "frozen"
        ),
        "Neither the frozen parameter nor a buffer is here. Which list do you go through?": (
            names_where(is_trained)
        ),
        "One weight has two names, and a model that loads the file asks for both.": When(
            lambda s: s.rank == 0 and {*s.right} - {*s.value} in ({"output.weight"}, {"position"})
        ),
        "Every rank must call, but which one writes the file? The others keep nothing.": (
            lambda call, rank: sorted(numbers_of(call))
        ),
        "This entry is not saved by model.state_dict(). Which list do you go through?": When(
            lambda seen: seen.rank == 0 and "scratch" in seen.value
        ),
        "On which rank is the result? The others return an empty dict.": When(
            lambda s: not s.everyone[0].value and any(one.value for one in s.everyone)
        ),
        "Some names are not those of the state dict. Under which name would a model look for the "
        "entry?": When(lambda seen: seen.rank == 0 and {*seen.value} - {*seen.right}),
    },
    otherwise="Compare the names with those of model.state_dict(). Which path leaves some out?",
    came=lambda seen: f"a dict with {names_in_words(seen)} on rank {seen.rank}",
    required="all entries of model.state_dict() on rank 0, and none on the other ranks",
)
FORMS = Look(
    of=lambda seen: seen.came["forms"],
    right=on_rank_0(forms_of, {}),
    mistakes={
        "A state dict holds tensors. Which line makes something else of this one?": When(
            lambda seen: not all(one.startswith(TENSORS) for one in seen.value.values())
        ),
        "This is still a DTensor, which holds only its piece. What makes it whole?": When(
            lambda seen: any("DTensor" in one for one in seen.value.values())
        ),
        "These are rank 0's own rows. Where do the other rows come from?": When(has_own_rows_only),
        "The numbers are right, the shape is not. Which line flattens the tensor?": When(
            lambda s: all(
                identical_flat(s.came["values"].get(name), value)
                for name, value in numbers_of(s.case).items()
            )
        ),
        "It is longer than the parameter. Some ranks have fewer rows than rank 0: what is in their "
        "place, and which line removes the padding?": When(
            lambda s: any(rows(s, name)[0] > rows(s, name)[1] for name in PARAMETERS)
        ),
        "The dtype has changed on the way. Does every number survive that?": When(
            lambda s: shapes(s.value) == shapes(s.right)
        ),
    },
    otherwise="Follow one parameter: how many of its rows does each rank have, and what puts them "
    "together?",
    came="{part}: {value} {where}",
    required="{right}",
    words=str,
)
VALUES = Look(
    of=lambda seen: seen.came["values"],
    right=on_rank_0(numbers_of, {}),
    mistakes={
        "The buffers are not rank 0's own. Which line calculates with them, or takes another's?": (
            When(
                lambda s: all(
                    identical(s.value.get(name), s.right[name]) for name in PARAMETERS if s.right
                )
            )
        ),
        "The rows are right, their order is not. In which order must the pieces be joined?": When(
            lambda s: same_numbers(*first_wrong(s))
        ),
        "Some rows are zeros, which no rank has. How many rows does each rank have?": When(
            lambda s: bool((first_wrong(s)[0] == 0).any())
        ),
    },
    otherwise="Compare the first wrong tensor with the pieces, row by row.",
    came=lambda seen: row_in_words(seen, 0),
    required=lambda seen: row_in_words(seen, 1),
    same=identical,
)
AFTERWARDS = Look(
    of=lambda seen: seen.came["model"],
    right=lambda call: {name: "" for name, _ in Small().named_parameters()},
    mistakes={
        "The model is left unsharded: each rank holds all of it. What shards it again?": When(
            lambda seen: "is whole" in seen.value.values()
        ),
    },
    otherwise="Which line writes into the model?",
    came="{part} {value} on rank {rank}, after the call",
    required="the model as it was: a piece of each parameter on each rank",
    words=str,
)
MEMORY = Look(
    of=lambda seen: seen.came["most"] if seen.rank else 0,
    right=LIMIT,
    mistakes={
        "This rank keeps every whole tensor until the end. When does it need the last one?": When(
            lambda seen: seen.value >= BYTES
        ),
    },
    otherwise="How many whole tensors does this rank have at the same time? It needs to keep none.",
    came="the right dicts; rank {rank} had up to {value} bytes of new tensors at a time",
    required=f"{{right}} at most: half of the model's {BYTES:,} bytes",
    same=lambda came, right: came <= right,
)


CHECK = OnRanks(
    cases=lambda size: [Call(size, 0)] * (size == 4) + [Call(size, 1, evaluated=True)],
    called=in_call,
    given=sharded,
    caller=counted,
    observe=seen_of,
    looks=[KIND, NAMES, FORMS, VALUES, AFTERWARDS, MEMORY],
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
