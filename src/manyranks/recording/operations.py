"""Translates operators of PyTorch's dispatcher into calls of torch.distributed."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

from manyranks.network.operators import OPS, PEER, flat, size

# The columns of one operation on one rank; the notebook's side adds rank and seq.
FIELDS = ("group", "op", "peer", "shape", "dtype", "bytes", "received", "line")

NAMESPACES = frozenset({"c10d", "_c10d_functional", "_dtensor"})
# Operators that send nothing.
LOCAL_OPS = frozenset({"wait_tensor", "_wrap_tensor_autograd", "check_for_nan"})
# The names of arguments in the operators' schemas; `tensors` are changed in place.
INPUT_ARGUMENTS = (
    "input",
    "inputs",
    "input_tensor",
    "input_tensors",
    "input_list",
    "tensor",
    "tensors",
)
OUTPUT_ARGUMENTS = (
    "output",
    "outputs",
    "output_tensor",
    "output_tensors",
    "output_lists",
    "out",
    "tensors",
)


def single_calls(name: str, arguments: dict) -> Iterator[tuple[str, dict]]:
    """The call itself, or each send and receive of a functional batch of them."""
    if name != "batch_p2p_ops":
        yield name, arguments
        return
    each = zip(arguments["op_list"], arguments["peer_list"], arguments["tensors"], strict=True)
    for op, peer, tensor in each:
        yield op, {"tensor": tensor, "dst": peer, "group_name": arguments["group_name"]}


def operation_row(name: str, arguments: dict, line: str) -> dict:
    """FIELDS of the operator `name` called with these arguments; see `record_collectives`."""
    op, group = OPS.get(name, name), group_of(arguments)
    ranks = dist.get_process_group_ranks(group)
    peer = next((global_rank(arguments[key], ranks) for key in PEER if key in arguments), None)
    inputs, outputs = inputs_and_outputs(op, arguments, at_root=peer == dist.get_rank())
    payload = inputs or outputs
    shapes = tuple(tuple(t.shape) for t in payload)
    return {
        "group": "default" if group is dist.group.WORLD else "ranks " + ",".join(map(str, ranks)),
        "op": op,
        "peer": peer,
        "shape": shapes[0] if len(shapes) == 1 else shapes or None,
        "dtype": ", ".join(dict.fromkeys(str(t.dtype).removeprefix("torch.") for t in payload)),
        "bytes": size(payload),
        "received": size(outputs),
        "line": line,
    }


def global_rank(number: int, ranks: list[int]) -> int:
    """Global rank of the group's member with this number; an unknown number stays as it is."""
    return ranks[number] if 0 <= number < len(ranks) else number


def inputs_and_outputs(op: str, arguments: dict, *, at_root: bool) -> tuple[list, list]:
    """The tensors that this rank hands in, and those that the call fills here."""
    inputs = [t for key in INPUT_ARGUMENTS for t in flat(arguments.get(key))]
    outputs = [t for key in OUTPUT_ARGUMENTS for t in flat(arguments.get(key))]
    if op.endswith("barrier"):
        return [], []  # its tensor belongs to the dispatcher
    if op == "send" or (op == "broadcast" and at_root):
        return inputs, []
    if op in ("recv", "broadcast"):
        return [], inputs
    return inputs, [] if op == "reduce" and not at_root else outputs


def group_of(arguments: dict) -> dist.ProcessGroup:
    """The process group among an operator's arguments: by name, boxed, or as an object."""
    group = arguments.get("process_group", arguments.get("group_name"))
    if isinstance(group, str):
        return _resolve_process_group(group)
    return dist.ProcessGroup.unbox(group) if isinstance(group, torch.ScriptObject) else group
