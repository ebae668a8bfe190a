"""Train with every parameter, gradient and optimizer state cut into one piece a rank, by hand.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/fully_sharded_by_hand.py

New since collectives.py: between two uses no rank has a whole parameter. `FullyShardedByHand` keeps
this rank's piece of each. Before a block's forward an all-gather puts its parameters together, and
afterwards they are freed. In backward they are gathered anew, and a reduce-scatter leaves each rank
the gradient of its own pieces. The optimizer sees nothing but pieces. The model is a transformer,
and its optimizer AdamW, which keeps two numbers for each parameter.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves, tree_map

from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.digits import DigitsDataset, DigitsTransformer, Trained, accuracy, batches
from ddp_workbook.training_run import run

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 3
LEARNING_RATE, MAX_NORM = 0.002, 1.0
SEED = 0

NO_FORWARD = nn.Module.forward  # what a ModuleList has


def shard(tensor: Tensor) -> Tensor:
    """This rank's piece: flattened, padded with zeros to a multiple of the ranks, cut."""
    ranks = dist.get_world_size()
    padded = F.pad(tensor.flatten(), (0, -tensor.numel() % ranks))
    # A clone: a view would keep the whole tensor in memory.
    return padded.view(ranks, padded.numel() // ranks)[dist.get_rank()].clone()


class Place(NamedTuple):
    """Where a parameter is used: `module.name`, `path` in the model. A tied one has several."""

    module: nn.Module
    name: str
    path: str


class Unit:
    """Parameters that are gathered together, and freed together."""

    def __init__(self, used: dict[nn.Parameter, list[Place]], dtype: torch.dtype | None) -> None:
        self.places = list(used.values())
        self.shapes = [parameter.shape for parameter in used]
        self.dtype = dtype  # of forward and backward; None: that of the parameters
        self.shards = [nn.Parameter(shard(p.detach()), p.requires_grad) for p in used]
        self.whole: list[Tensor] = []  # while they are gathered
        self.in_backward = False
        self.put(self.shards)

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Have the modules find these where their parameters were."""
        for places, tensor in zip(self.places, tensors, strict=True):
            for place in places:
                # Past `setattr`, which takes nothing but an nn.Parameter here.
                place.module._parameters[place.name] = tensor

    def all_gather(self, dtype: torch.dtype | None = None) -> list[Tensor]:
        """All parameters, whole, from the pieces of all ranks; one all-gather."""
        own = torch.cat([piece.detach() for piece in self.shards])
        own = own.to(dtype or own.dtype)
        everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, own)
        sizes = [piece.numel() for piece in self.shards]
        by_parameter = zip(*[theirs.split(sizes) for theirs in everyone], strict=True)
        self.whole = [
            torch.cat(pieces)[: shape.numel()].view(shape)
            for pieces, shape in zip(by_parameter, self.shapes, strict=True)
        ]
        return self.whole

    def gather_for_backward(self, *_: Any) -> None:
        """Have them whole again, in the modules too: a checkpoint may compute a part anew."""
        whole = self.whole or self.all_gather(self.dtype)
        for tensor, piece in zip(whole, self.shards, strict=True):
            tensor.requires_grad_(piece.requires_grad)
        self.put(whole)
        self.in_backward = True
        # Frozen parameters have no backward that frees them: do it when all of it is over.
        torch.autograd.Variable._execution_engine.queue_callback(self.free)

    def free(self) -> None:
        """Let go of the whole parameters; the modules find the pieces again."""
        self.put(self.shards)
        self.whole, self.in_backward = [], False

    def reduce_scatter(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """This rank's piece of each gradient's mean over the ranks; one reduce-scatter."""
        ranks = dist.get_world_size()
        reduced = list(gradients)  # None stays None: a parameter that was not used, on all ranks
        present = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if not present:
            return reduced
        rows = []  # for each gradient: row r is rank r's piece of it
        for i in present:
            flat = gradients[i].flatten().to(self.shards[i].dtype)  # added up in full precision
            rows.append(F.pad(flat, (0, -flat.numel() % ranks)).view(ranks, -1))
        pieces = torch.cat(rows, dim=1)
        own = torch.empty_like(pieces[0])
        dist.reduce_scatter(own, list(pieces))
        own /= ranks
        for i, piece in zip(present, own.split([row.shape[1] for row in rows]), strict=True):
            reduced[i] = piece
        return reduced


class Gather(torch.autograd.Function):
    """Forward: from the pieces to whole parameters. Backward: from whole gradients to pieces."""

    @staticmethod
    def forward(ctx: Any, unit: Unit, *shards: Tensor) -> tuple[Tensor, ...]:
        ctx.unit = unit
        ctx.set_materialize_grads(False)  # None, not zeros, for what was not used
        # In backward they are whole already, where a checkpoint computes a block anew.
        whole = [tensor.detach() for tensor in unit.whole or unit.all_gather(unit.dtype)]
        frozen = [t for t, piece in zip(whole, shards, strict=True) if not piece.requires_grad]
        ctx.mark_non_differentiable(*frozen)
        return tuple(whole)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple:
        ctx.unit.free()  # autograd comes here when every use of them has had its turn
        return None, *ctx.unit.reduce_scatter(gradients)


class Recipe(NamedTuple):
    """What autograd keeps for backward in place of a gathered parameter, or of a view of one."""

    unit: Unit
    index: int
    geometry: tuple  # size, stride, offset


class FullyShardedByHand(nn.Module):
    """`module`, with its parameters cut over the ranks and whole only while they are used.

    Each of `blocks`, modules inside `module`, is gathered by itself; what is left over is gathered
    for the whole forward and backward. A parameter that two blocks share counts as left over.
    Parameters of fewer than `keep_whole_below` elements stay whole, in their own dtype, and their
    gradients are averaged. With `compute_dtype` forward and backward run in that dtype, and so does
    the all-gather; pieces, gradients and their sum over the ranks keep the dtype of the parameters.
    All ranks start with equal parameters, and each calls forward and backward equally often.
    Gradients are means over the ranks, as with DDP. A block of frozen parameters alone stays whole
    until the end of backward, and an LSTM always: it has its weights in a list, too.

    Raises ValueError if a block is not a part of `module` or has no forward of its own, or if
    parameters that would be gathered together have different dtypes; RuntimeError in backward with
    `create_graph`.
    """

    def __init__(
        self,
        module: nn.Module,
        blocks: Iterable[nn.Module] = (),
        compute_dtype: torch.dtype | None = None,
        keep_whole_below: int = 0,
    ) -> None:
        super().__init__()
        self.module, self.compute_dtype = module, compute_dtype
        used_by = places_by_owner(module, list(blocks), keep_whole_below)
        self.units = []
        module.register_forward_pre_hook(partial(free_all, self.units))
        for owner, used in used_by.items():
            self.units.append(unit := Unit(used, compute_dtype))
            owner.register_forward_pre_hook(lambda *_, unit=unit: unit.put(gathered(unit)))
            owner.register_forward_hook(partial(put_back, unit, owner is module), always_call=True)
        sharded = {piece for unit in self.units for piece in unit.shards}
        self.kept_whole = [p for p in module.parameters() if p not in sharded and p.requires_grad]
        for parameter in self.kept_whole:
            parameter.register_post_accumulate_grad_hook(average_gradient)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's, with floating-point tensors in the arguments cast to `compute_dtype`."""
        args, kwargs = tree_map(self._cast, (args, kwargs))
        with saved_tensors_hooks(self._pack, self._unpack):  # else autograd keeps what we free
            return self.module(*args, **kwargs)

    def _cast(self, value: Any) -> Any:
        floating = isinstance(value, Tensor) and value.is_floating_point()
        return value.to(self.compute_dtype) if floating and self.compute_dtype else value

    def _pack(self, tensor: Tensor) -> Tensor | Recipe:
        """What autograd is to keep of a tensor that backward needs."""
        storage = tensor.untyped_storage().data_ptr()
        for unit in self.units:
            for index, whole in enumerate(unit.whole):
                if storage and whole.untyped_storage().data_ptr() == storage:
                    geometry = (tensor.size(), tensor.stride(), tensor.storage_offset())
                    return Recipe(unit, index, geometry)
        return tensor

    def _unpack(self, kept: Tensor | Recipe) -> Tensor:
        """The tensor again, in backward."""
        if isinstance(kept, Tensor):
            return kept
        if torch.is_grad_enabled():  # what is gathered here has no graph: wrong without an error
            raise RuntimeError("FullyShardedByHand has no second derivative: create_graph=True")
        if not kept.unit.whole:  # freed since, by another of several forwards
            kept.unit.gather_for_backward()
        return kept.unit.whole[kept.index].detach().as_strided(*kept.geometry)

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """`torch.nn.utils.clip_grad_norm_` for gradients in pieces; the norm of all of them."""
        pieces = [p.grad for unit in self.units for p in unit.shards if p.grad is not None]
        whole = [p.grad for p in self.kept_whole if p.grad is not None]
        squares = sum(g.square().sum() for g in pieces)
        if pieces:  # on all ranks or on none
            dist.all_reduce(squares)  # the padding adds zeros
        norm = torch.as_tensor(sum((g.square().sum() for g in whole), squares)).sqrt()
        for gradient in pieces + whole:
            gradient *= (max_norm / (norm + 1e-6)).clamp(max=1.0)
        return norm

    @torch.no_grad()
    def full_parameters(self) -> dict[str, Tensor]:
        """Every parameter of the module by its name, whole. All ranks must call this."""
        every = self.module.named_parameters(remove_duplicate=False)  # a tied one by each name
        full = {name: parameter.detach().clone() for name, parameter in every}
        for unit in self.units:
            for places, whole in zip(unit.places, unit.all_gather(), strict=True):
                full |= {place.path: whole for place in places}
            unit.free()
        return full


def gathered(unit: Unit) -> tuple[Tensor, ...]:
    """The unit's parameters, whole, for a forward."""
    return Gather.apply(unit, *unit.shards)


def put_back(unit: Unit, keep: bool, module: nn.Module, inputs: tuple, outputs: Any) -> None:
    """After a forward: pieces where the parameters were, and the whole ones freed unless `keep`.

    They are gathered anew as soon as backward reaches the outputs.
    """
    if unit.in_backward:  # a checkpoint has computed a block anew
        return
    unit.put(unit.shards)
    if not (keep and torch.is_grad_enabled()):  # backward needs the outermost unit at once
        unit.free()
    for output in tree_leaves(outputs):
        if isinstance(output, Tensor) and output.grad_fn:
            output.register_hook(unit.gather_for_backward)


def free_all(units: list[Unit], *_: Any) -> None:
    """Before a forward: what is still whole is stale, for its step had no backward or failed."""
    for unit in units:
        unit.free()


def average_gradient(parameter: Tensor) -> None:
    """Replace a gradient by its mean over the ranks."""
    dist.all_reduce(parameter.grad)
    parameter.grad /= dist.get_world_size()


def places_by_owner(
    module: nn.Module, blocks: list[nn.Module], keep_whole_below: int
) -> dict[nn.Module, dict[nn.Parameter, list[Place]]]:
    """For each block, and last for `module` itself: its parameters and where they are used."""
    places: dict[nn.Parameter, list[Place]] = {}
    owners: dict[nn.Parameter, set[nn.Module]] = {}
    owner_at: dict[str, nn.Module] = {}
    for path, inside in module.named_modules(remove_duplicate=False):  # from the outside in
        around = owner_at.get(path.rpartition(".")[0], module)
        owner_at[path] = inside if inside in blocks else around
        for full_name, parameter in inside.named_parameters(path, False, remove_duplicate=False):
            if parameter.numel() >= keep_whole_below:
                place = Place(inside, full_name.rpartition(".")[2], full_name)
                places.setdefault(parameter, []).append(place)
                owners.setdefault(parameter, set()).add(owner_at[path])
    found = set(owner_at.values())
    if strangers := [type(block).__name__ for block in blocks if block not in found]:
        raise ValueError(f"blocks must be modules inside the model: {', '.join(strangers)}")
    if lists := [type(block).__name__ for block in blocks if type(block).forward is NO_FORWARD]:
        raise ValueError(f"no forward gathers it; name the modules inside: {', '.join(lists)}")
    by_owner: dict[nn.Module, dict] = {owner: {} for owner in (*blocks, module)}
    for parameter, used in places.items():
        owner = owners[parameter].pop() if len(owners[parameter]) == 1 else module
        by_owner[owner][parameter] = used
    for used in by_owner.values():
        if len(dtypes := {parameter.dtype for parameter in used}) > 1:
            names = ", ".join(places[0].path for places in used.values())
            raise ValueError(f"one unit, several dtypes ({dtypes}): {names}")
    return {owner: used for owner, used in by_owner.items() if used}


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Trained:
    """Train on all ranks together; every rank returns the same."""
    device = setup()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsTransformer(width, depth).to(device)
    sharded = FullyShardedByHand(model, model.blocks)
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=LEARNING_RATE)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            my_images, my_labels = images[mine].to(device), labels[mine].to(device)
            loss = forward_and_backward(sharded, my_images, my_labels, len(images))
            sharded.clip_grad_norm_(MAX_NORM)
            optimizer.step()
            losses.append(loss)
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)
    right = accuracy(sharded, digits)  # on all ranks: its forward gathers
    weights = {name: whole.cpu() for name, whole in sharded.full_parameters().items()}
    cleanup()
    return Trained([loss.item() for loss in losses], right, weights)


if __name__ == "__main__":
    run(train)
