"""Models that are cut over ranks: which ranks compute one together, and what each of them holds.

Nothing here communicates: each rank writes the parts that it holds, and whoever reads the files of
all ranks puts them together by the places that the parts have.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DistributedSampler

from manyranks.script_doctor.notes import is_freed, is_sharded
from manyranks.script_doctor.patches import Patches

PIPELINING = "torch.distributed.pipelining"
NO_GRADIENT = 1e-12
ONE_NUMBER = 1e-3  # of a gradient: how far it may be from a multiple of another


# Which ranks


@dataclass
class Place:
    """Which ranks compute one model on the same rows, and which stage of it this rank has."""

    ranks: list[int]
    stage: int = 0
    stages: int = 1


@dataclass
class Division:
    """How the ranks share the work: `readers` are those that compute one model on the same rows."""

    readers: list[list[int]]
    stages: int = 1  # into which the model is cut
    stages_of: dict[int, list[int]] = field(default_factory=dict)  # rank -> the stages that it has

    @property
    def first_readers(self) -> list[int]:
        """One rank of each reader: what these read, all ranks have read."""
        return [ranks[0] for ranks in self.readers]


def division_of(facts: list[list[dict]]) -> Division:
    """The division that the facts of all ranks show."""
    readers = [{rank} for rank in range(len(facts))]
    places = [fact for of_rank in facts for fact in of_rank if fact["kind"] == "place"]
    for place in places:
        together = [of for of in readers if of.intersection(place["ranks"])]
        readers = [of for of in readers if of not in together] + [set().union(*together)]
    stages = max((place["stages"] for place in places), default=1)
    stages_of = {
        rank: sorted({fact["stage"] for fact in of_rank if fact["kind"] == "place"})
        for rank, of_rank in enumerate(facts)
    }
    return Division(sorted(map(sorted, readers)), stages, stages_of if stages > 1 else {})


def place_of(module: nn.Module, stage: Any) -> Place | None:
    """Where a model that is called stands among the ranks; None if this rank has all of it.

    `stage` is the one whose module it is, if it is part of a pipeline.
    """
    partners = set(ranks_of_tensors(module))
    if stage is None:
        return Place(sorted(partners)) if len(partners) > 1 else None
    group = stage.group if stage.group is not None else dist.group.WORLD
    partners |= set(dist.get_process_group_ranks(group))
    return Place(sorted(partners), stage.stage_index, stage.num_stages)


def ranks_of_tensors(module: nn.Module) -> Iterator[int]:
    """The ranks that hold the same layers in parts, without those that FSDP gives other rows."""
    with_other_rows = {
        rank
        for group in parameter_groups(module)
        for rank in group.mesh_info.mesh.mesh.flatten().tolist()
    }
    meshes = {p.device_mesh for p in module.parameters() if is_sharded(p)}  # type: ignore[attr-defined]
    for mesh in meshes:
        own = mesh.get_coordinate()
        for dim in range(mesh.ndim) if own is not None else ():
            line = mesh.mesh[(*own[:dim], slice(None), *own[dim + 1 :])].tolist()
            if not with_other_rows.issuperset(line):
                yield from line


def parameter_groups(module: nn.Module) -> Iterator[Any]:
    """What `fully_shard` keeps of the parameters of each unit."""
    for unit in module.modules():
        if hasattr(unit, "_get_fsdp_state"):
            state = unit._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None)  # one, in other versions
            yield from filter(None, groups or [getattr(state, "_fsdp_param_group", None)])


def has_unsent_gradients(module: nn.Module) -> bool:
    """True if FSDP keeps gradients of earlier micro-batches, which it has not reduced yet."""
    return any(
        getattr(parameter, "unsharded_accumulated_grad", None) is not None
        for group in parameter_groups(module)
        for parameter in getattr(group, "fsdp_params", ())
    )


def stage_of_caller(module: nn.Module) -> Any:
    """The pipeline stage that calls this module; None if none does."""
    if PIPELINING not in sys.modules:
        return None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        is_stage = type(caller).__module__.startswith(PIPELINING)
        if is_stage and getattr(caller, "submod", None) is module:
            return caller
        frame = frame.f_back
    return None


def fit_to_one_rank(patches: Patches) -> None:
    """Let a script run on one rank whose mesh, or sampler, is made for as many as it has cut.

    With 1 // 2 ranks for the data a mesh would have no rank at all, and a sampler no share.
    """

    def make_mesh(
        init: Any, device_type: str, mesh_shape: Sequence[int], *args: Any, **kw: Any
    ) -> Any:
        return init(device_type, (1,) * len(mesh_shape), *args, **kw)

    def make_sampler(
        init: Any, sampler: Any, dataset: Any, num_replicas: Any = None, rank: Any = None, **kw: Any
    ) -> None:
        init(sampler, dataset, 1 if num_replicas == 0 else num_replicas, rank, **kw)

    for owner in (dist, dist.device_mesh):
        patches.replace(owner, "init_device_mesh", make_mesh)
    patches.replace(DistributedSampler, "__init__", make_sampler)


# What each rank holds


def piece_of(tensor: torch.Tensor | None) -> dict[str, Any] | None:
    """A tensor, or the part of it that this rank holds and where in the whole it begins.

    A part may be a summand of the whole: then it says which one.
    """
    if tensor is None:
        return None
    if not is_sharded(tensor):
        if tensor.layout is torch.strided and is_freed(tensor):
            return None
        return {"values": tensor.detach().to_dense().cpu().clone()}
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    values = tensor.to_local().detach().cpu().clone()  # type: ignore[attr-defined]
    partial = [dim for dim, placement in enumerate(placements) if placement.is_partial()]
    kinds = {placements[dim].reduce_op for dim in partial}
    if tuple(shape) != tuple(values.shape) or not kinds <= {"sum", "avg"} or len(kinds) > 1:
        return None
    return {
        "values": values,
        "offset": list(offset),
        "shape": list(tensor.shape),
        "summand": [mesh.get_coordinate()[dim] for dim in partial],
        "mean": "avg" in kinds,
    }


def whole_tensor(own: dict | None, pieces: Iterable[dict | None]) -> torch.Tensor:
    """A tensor, put together from the pieces of all ranks if it is sharded; flat, doubles.

    No gradient is one of no elements; what no rank holds is nan.
    """
    if own is None:
        return torch.zeros(0, dtype=torch.double)
    if "shape" not in own:
        return own["values"].double().flatten()
    summands: dict[tuple[int, ...], torch.Tensor] = {}
    for piece in [*pieces, own]:  # its own at last: replicas of a shard should be equal
        if piece is None or piece.get("shape") != own["shape"]:
            continue
        key = tuple(piece["summand"])
        if key not in summands:
            summands[key] = torch.full(own["shape"], torch.nan, dtype=torch.double)
        sizes = zip(piece["offset"], piece["values"].shape, strict=True)
        place = tuple(slice(begin, begin + size) for begin, size in sizes)
        summands[key][place] = piece["values"].double()
    whole = torch.stack([*summands.values()]).sum(0)
    return (whole / len(summands) if own["mean"] else whole).flatten()


def factor_between(used: torch.Tensor, before: torch.Tensor) -> float | None:
    """By what number a gradient was multiplied; None if it is no multiple of what it was."""
    used, before = used.double().flatten(), before.double().flatten()
    if used.shape != before.shape or not before.norm() > NO_GRADIENT:
        return None
    factor = used @ before / (before @ before)
    is_multiple = (used - factor * before).norm() <= ONE_NUMBER * used.norm()
    return float(factor) if is_multiple else None
