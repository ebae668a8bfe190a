"""Models that FullyShardedByHand must train as one process does, and what is looked at."""

import copy
import gc
import importlib
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.fully_sharded_by_hand import FullyShardedByHand, Unit

ROWS, WIDTH, STEPS = 12, 6, 3  # rows of all ranks together
MAX_NORM = 0.5


def linear(inputs: int = WIDTH, outputs: int = WIDTH, **kwargs: Any) -> nn.Module:
    """A layer and a smooth function."""
    return nn.Sequential(nn.Linear(inputs, outputs, **kwargs), nn.Tanh())


class Blocks(nn.Module):
    """A layer, three blocks, a layer."""

    def __init__(self, block: Callable[[], nn.Module] = linear) -> None:
        super().__init__()
        self.first = linear()
        self.blocks = nn.ModuleList(block() for _ in range(3))
        self.last = nn.Linear(WIDTH, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] to [rows, 5]."""
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class TiedInside(nn.Module):
    """One weight, used twice in a block."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.back.weight = self.there.weight

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return self.back(self.there(x).tanh())


def tied_across() -> nn.Module:
    """The first and the last block share a weight, and the second block is in the list twice."""
    model = Blocks()
    model.blocks[2][0].weight = model.blocks[0][0].weight
    model.blocks.append(model.blocks[1])
    return model


def one_layer_in_two_blocks() -> nn.Module:
    """The module itself is shared, not only its weight."""
    model = Blocks()
    model.blocks[2][0] = model.blocks[0][0]
    return model


class Language(nn.Module):
    """Tokens to scores of the next one; the output head is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, WIDTH)
        self.block = linear()
        self.head = nn.Linear(WIDTH, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] of anything to [rows, 10]."""
        tokens = (x[:, :3].abs() * 100).long() % 10
        return self.head(self.block(self.embedding(tokens)).mean(1))


def frozen(*names: str) -> Callable[[], nn.Module]:
    """Blocks of which the parameters with these beginnings are not trained."""

    def build() -> nn.Module:
        model = Blocks()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not name.startswith(names))
        return model

    return build


class Unused(nn.Module):
    """A parameter in it, and a whole layer, have no part in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.lonely = nn.Parameter(torch.ones(7))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return self.used(x).tanh()


class SkipsABlock(Blocks):
    """The second block has no part in forward."""

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] to [rows, 5]."""
        return self.last(self.blocks[2](self.blocks[0](self.first(x))))


class UsesABlockTwice(Blocks):
    """The second block before and after the third."""

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] to [rows, 5]."""
        for i in (0, 1, 2, 1):
            x = self.blocks[i](x)
        return self.last(x)


class ChangesInPlace(Blocks):
    """What a block returns is written over."""

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] to [rows, 5]."""
        x = self.first(x)
        for block in self.blocks:
            x = block(x).tanh_()
        return self.last(x)


class CheckpointAround(Blocks):
    """Each block is computed anew in backward."""

    reentrant = False

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] to [rows, 5]."""
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.last(x)


class ReentrantCheckpointAround(CheckpointAround):
    """The older kind, with a backward inside of backward."""

    reentrant = True


class CheckpointInside(nn.Module):
    """A part of the block is computed anew in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 9), nn.Tanh(), nn.Linear(9, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x + checkpoint(self.mlp, self.norm(x), use_reentrant=False)


class CheckpointOfAMethod(nn.Module):
    """What is computed anew is no module, and uses weights itself."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def part(self, x: Tensor) -> Tensor:
        """The same shape."""
        return F.linear(x, self.two.weight, self.two.bias).tanh()

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return checkpoint(self.part, self.one(x), use_reentrant=False)


class CheckpointOfTheRest(Blocks):
    """A layer outside of the blocks is computed anew in backward."""

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] to [rows, 5]."""
        x = checkpoint(self.first, x, use_reentrant=False)
        for block in self.blocks:
            x = block(x)
        return checkpoint(self.last, x, use_reentrant=False)


class OddShapes(nn.Module):
    """Parameters of 0, 1 and 2 elements, a scalar, and one of three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.empty = nn.Parameter(torch.ones(0, 3))
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.one, self.two = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(2))
        self.cube = nn.Parameter(torch.randn(2, 3, 5))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        turned = torch.einsum("abc,ra->rbc", self.cube, x[:, :2] * self.two).sum((1, 2))
        return (x * self.scale + self.one + turned[:, None]).tanh() + self.empty.sum()


class OnlyEmpty(nn.Module):
    """A block whose only parameter has no element."""

    def __init__(self) -> None:
        super().__init__()
        self.empty = nn.Parameter(torch.ones(3, 0))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x + self.empty.sum()


class Nested(nn.Module):
    """A block with a block in it."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.inner, self.after = linear(), linear(), linear()

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return self.after(self.inner(self.before(x)))


class TakesAnything(nn.Module):
    """Tensors in a tuple and by name; gives a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.other = Pair(), linear()

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] to the same."""
        both = self.part((x, [x * 2]), scale=x[:, :1], name="sum")
        return self.other(both["sum"])


class Pair(nn.Module):
    """The part that gets and gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, both: tuple, *, scale: Tensor, name: str) -> dict[str, Tensor]:
        """The sum of two layers under `name`."""
        left, (right,) = both
        return {name: (self.left(left) + self.right(right)).tanh() * scale}


class WithBatchNorm(nn.Module):
    """Buffers, in a block and in its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)
        self.register_buffer("mask", torch.tensor([1.0, 0, 1, 0, 1, 1]))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return self.norm(self.layer(x * self.mask)).tanh()


class Convolutions(nn.Module):
    """Two convolutions over an image of WIDTH by WIDTH, made of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Tanh())
        self.two = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.GroupNorm(2, 4), nn.Tanh())
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] to [rows, 5]."""
        image = x[:, None, :, None] * x[:, None, None, :]
        return self.head(self.two(self.one(image)).mean((2, 3)))


class Recurrent(nn.Module):
    """An LSTM, which keeps a list of its weights beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 4, num_layers=2, batch_first=True)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] to [rows, 5]."""
        return self.head(self.lstm(x.unflatten(1, (3, 2)))[0][:, -1])


class Encoder(nn.Module):
    """PyTorch's own transformer."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.embedding = nn.Linear(2, 8)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] to [rows, 5]."""
        return self.head(self.encoder(self.embedding(x.unflatten(1, (3, 2)))).mean(1))


class WeightNorm(nn.Module):
    """A weight that is computed of two parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return self.layer(x).tanh()


class OtherDtype(nn.Module):
    """A block of float32 in a model of float64."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, dtype=torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return self.layer(x.float()).to(x.dtype)


# How a step is taken: `forward_backward(model, batches)`, where a batch has each rank's share


def plain(model: nn.Module, x: Tensor) -> Tensor:
    """Forward and backward; returns the loss."""
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach()


def under_autocast(model: nn.Module, x: Tensor) -> Tensor:
    """Forward in bfloat16, by the operators' own choice."""
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(x.float()).float().square().mean()
    loss.backward()
    return loss.detach()


def two_backwards(model: nn.Module, x: Tensor) -> Tensor:
    """Gradients are accumulated over two halves."""
    return sum(plain(model, half) for half in (x, x.flip(1)))


def two_forwards(model: nn.Module, x: Tensor) -> Tensor:
    """Two forwards, then one backward through both."""
    loss = model(x).square().mean() + model(x.flip(1)).square().mean()
    loss.backward()
    return loss.detach()


def backward_in_turn(model: nn.Module, x: Tensor) -> Tensor:
    """Two forwards, then a backward for each, the first one's first."""
    losses = [model(x).square().mean(), model(x.flip(1)).square().mean()]
    for loss in losses:
        loss.backward()
    return sum(losses).detach()


def twice_through_one_graph(model: nn.Module, x: Tensor) -> Tensor:
    """Backward twice, through a graph that is kept."""
    loss = model(x).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    return loss.detach()


def evaluated_between(model: nn.Module, x: Tensor) -> Tensor:
    """Forwards without gradients before, between forward and backward, and afterwards."""
    with torch.no_grad():
        model(x)
    loss = model(x).square().mean()
    with torch.inference_mode():
        model(x)
    loss.backward()
    model.eval()
    with torch.no_grad():
        model(x)
    model.train()
    return loss.detach()


def forward_without_backward(model: nn.Module, x: Tensor) -> Tensor:
    """A graph without a backward, then a step."""
    model(x).square().mean()
    return plain(model, x)


def input_with_gradient(model: nn.Module, x: Tensor) -> Tensor:
    """The input wants a gradient, too; its size goes into what is compared."""
    x = x.clone().requires_grad_()
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach() + x.grad.abs().sum()


class Case(NamedTuple):
    """A model, what is a block in it, how a step is taken, arguments of FullyShardedByHand."""

    build: Callable[[], nn.Module] = Blocks
    blocks: Callable[[Any], Iterable[nn.Module]] = lambda model: model.blocks
    step: Callable[[nn.Module, Tensor], Tensor] = plain
    arguments: Mapping[str, Any] = MappingProxyType({})


def block_of(kind: Callable[[], nn.Module]) -> Case:
    """Blocks of this kind."""
    return Case(lambda: Blocks(kind))


CASES = {
    "blocks": Case(),
    "no blocks": Case(blocks=lambda model: ()),
    "blocks alone": Case(lambda: nn.Sequential(linear(), linear()), list),
    "the model as a block": Case(blocks=lambda model: [model, *model.blocks]),
    "a generator": Case(blocks=lambda model: (block for block in model.blocks)),
    "a block named twice": Case(blocks=lambda model: [*model.blocks, *model.blocks]),
    "every layer": Case(blocks=lambda m: [x for x in m.modules() if isinstance(x, nn.Linear)]),
    "small ones whole": Case(arguments={"keep_whole_below": 7}),
    "all whole": Case(arguments={"keep_whole_below": 1000}),
    "small ones whole, twice": Case(step=two_backwards, arguments={"keep_whole_below": 7}),
    "tied inside a block": block_of(TiedInside),
    "tied across blocks": Case(tied_across),
    "tied, the whole": Case(tied_across, lambda model: ()),
    "tied, kept whole": Case(tied_across, arguments={"keep_whole_below": 1000}),
    "embedding and head": Case(Language, lambda model: [model.block]),
    "embedding and head as blocks": Case(Language, lambda m: [m.embedding, m.block, m.head]),
    "one frozen": Case(frozen("blocks.1.0.weight")),
    "a frozen block": Case(frozen("blocks.1")),
    "frozen but for the first": Case(frozen("blocks", "last")),
    "frozen but for the last block": Case(frozen("first", "blocks.0", "blocks.1")),
    "frozen rest": Case(frozen("first", "last")),
    "frozen and kept whole": Case(frozen("blocks.1"), arguments={"keep_whole_below": 1000}),
    "unused parameters": block_of(Unused),
    "unused parameters, kept whole": block_of(Unused)._replace(arguments={"keep_whole_below": 99}),
    "an unused block": Case(SkipsABlock),
    "a block used twice": Case(UsesABlockTwice),
    "changed in place": Case(lambda: ChangesInPlace(lambda: nn.Linear(WIDTH, WIDTH))),
    "autocast": Case(lambda: Blocks(CheckpointInside).float(), step=under_autocast),
    "two backwards": Case(step=two_backwards),
    "two forwards": Case(step=two_forwards),
    "two forwards, backward in turn": Case(step=backward_in_turn),
    "one graph twice": Case(step=twice_through_one_graph),
    "evaluated between": Case(step=evaluated_between),
    "a forward without backward": Case(step=forward_without_backward),
    "input with a gradient": Case(step=input_with_gradient),
    "input with a gradient, frozen": Case(frozen("first", "blocks"), step=input_with_gradient),
    "checkpoint around": Case(CheckpointAround),
    "reentrant checkpoint around": Case(ReentrantCheckpointAround),
    "checkpoint inside": block_of(CheckpointInside),
    "checkpoints in checkpoints": Case(lambda: CheckpointAround(CheckpointInside)),
    "checkpoint of a method": block_of(CheckpointOfAMethod),
    "checkpoint of the rest": Case(CheckpointOfTheRest),
    "checkpoint of the rest, two forwards": Case(CheckpointOfTheRest, step=two_forwards),
    "checkpoint inside, frozen input": Case(
        lambda: Blocks(CheckpointInside), step=input_with_gradient
    ),
    "odd shapes": block_of(OddShapes),
    "odd shapes, kept whole": block_of(OddShapes)._replace(arguments={"keep_whole_below": 2}),
    "nothing but empty": block_of(OnlyEmpty),
    "a layer in two blocks": Case(one_layer_in_two_blocks),
    "no parameters": Case(lambda: Blocks(nn.Tanh)),
    "nested": Case(lambda: Blocks(Nested), lambda m: [b for x in m.blocks for b in (x, x.inner)]),
    "nested, inner first": Case(
        lambda: Blocks(Nested), lambda m: [b for x in m.blocks for b in (x.inner, x)]
    ),
    "tuples and names": Case(TakesAnything, lambda model: [model.part]),
    "buffers": block_of(WithBatchNorm),
    "layer norm": block_of(lambda: nn.LayerNorm(WIDTH)),
    "convolutions": Case(Convolutions, lambda model: [model.one, model.two]),
    "an LSTM": Case(Recurrent, lambda model: [model.lstm]),
    "PyTorch's transformer": Case(Encoder, lambda model: model.encoder.layers),
    "PyTorch's transformer, evaluated": Case(
        Encoder, lambda model: model.encoder.layers, evaluated_between
    ),
    "weight norm": block_of(WeightNorm),
    "dtypes": block_of(OtherDtype),
}


def differences(names: list[str]) -> dict[str, str]:
    """For each case of these, what differs from one process after some steps; "" if nothing.

    A warning is an error: it would be one more thing for a reader to wonder about.
    """
    setup()
    warnings.simplefilter("error")
    torch.set_default_dtype(torch.float64)  # so that AdamW shows no rounding
    found = {}
    for name in names:
        try:
            found[name] = difference(CASES[name])
        except Exception as error:  # on all ranks alike, or the next case hangs
            found[name] = f"{type(error).__name__}: {error}"
    cleanup()
    return found


def differences_of_a_fault() -> str:
    """What `difference` says where gradients are added up, and not averaged."""
    setup()
    torch.set_default_dtype(torch.float64)
    reduce_scatter = Unit.reduce_scatter

    def forget_to_divide(unit: Unit, gradients: list) -> list:
        return [piece * dist.get_world_size() for piece in reduce_scatter(unit, gradients)]

    Unit.reduce_scatter = forget_to_divide
    found = difference(CASES["blocks"])
    cleanup()
    return found


def difference(case: Case) -> str:
    """What differs from one process: a loss, a norm, which gradients there are, a parameter."""
    torch.manual_seed(3)
    alone = case.build()
    torch.manual_seed(3)
    model = case.build()
    sharded = FullyShardedByHand(model, case.blocks(model), **case.arguments)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.05) for m in (alone, sharded)]
    generator = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        shares = torch.randn(ROWS, WIDTH, generator=generator).chunk(dist.get_world_size())
        for optimizer in optimizers:
            optimizer.zero_grad()
        expected = step_of_one_process(alone, shares, case.step)
        loss = case.step(sharded, shares[dist.get_rank()])
        if abs(loss - expected[dist.get_rank()]) > 1e-6:
            return f"step {step}: loss {loss}, not {expected[dist.get_rank()]}"
        norms = [nn.utils.clip_grad_norm_(alone.parameters(), MAX_NORM)]
        norms.append(sharded.clip_grad_norm_(MAX_NORM))
        if abs(norms[0] - norms[1]) > 1e-6:
            return f"step {step}: norm {norms[1]}, not {norms[0]}"
        for optimizer in optimizers:
            optimizer.step()
    return unequal_parameters(alone, sharded) or unequal_gradients(alone, sharded)


def step_of_one_process(model: nn.Module, shares: tuple, step: Callable) -> list[Tensor]:
    """Gradients are the means over the shares; the loss of each share."""
    losses = [step(model, share) for share in shares]
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= len(shares)
    return losses


def unequal_parameters(alone: nn.Module, sharded: FullyShardedByHand) -> str:
    """Names of those that are not as in one process."""
    expected = dict(alone.named_parameters(remove_duplicate=False))
    full = sharded.full_parameters()
    if full.keys() != expected.keys():
        return f"names: {sorted(full.keys() ^ expected.keys())}"
    wrong = [
        name
        for name, parameter in expected.items()
        if full[name].shape != parameter.shape or not torch.allclose(full[name], parameter)
    ]
    return f"parameters: {wrong}" if wrong else ""


def unequal_gradients(alone: nn.Module, sharded: FullyShardedByHand) -> str:
    """Parameters whose gradient is only in one process, only here, or of another shape."""
    here = dict(sharded.module.named_parameters())
    wrong = [
        name
        for name, parameter in alone.named_parameters()
        if (parameter.grad is None) != (here[name].grad is None)
        or (here[name].grad is not None and here[name].grad.shape != here[name].shape)
    ]
    return f"gradients: {wrong}" if wrong else ""


# What is in memory when

IN_MEMORY = [name for name in CASES if name != "dtypes"]  # that one is for float64


class Watch:
    """Which units have a whole parameter in memory."""

    def __init__(self) -> None:
        self.storages: dict[int, list[StorageWeakRef]] = {}
        self.most = 0
        self.all_gather = Unit.all_gather

    def __enter__(self) -> "Watch":
        watch = self

        def all_gather(unit: Unit, *args: Any) -> list[Tensor]:
            whole = watch.all_gather(unit, *args)
            refs = [StorageWeakRef(tensor.untyped_storage()) for tensor in whole]
            watch.storages.setdefault(id(unit), []).extend(refs)
            watch.most = max(watch.most, watch.alive())
            return whole

        Unit.all_gather = all_gather
        return self

    def __exit__(self, *_: Any) -> None:
        Unit.all_gather = self.all_gather

    def alive(self) -> int:
        """Units of which any whole parameter is in memory now."""
        return sum(any(not ref.expired() for ref in refs) for refs in self.storages.values())


def units_in_memory(names: list[str]) -> dict[str, dict[str, int]]:
    """For each of these cases: units that are whole at most, and after each part of a step.

    With Python's garbage collector off: what is freed is freed at once.
    """
    setup()
    gc.collect()
    gc.disable()
    found = {}
    for name in names:
        case = CASES[name]
        model = case.build()
        with Watch() as watch:
            sharded = FullyShardedByHand(model, case.blocks(model), **case.arguments)
            x = torch.randn(2, WIDTH)
            counts = {}
            loss = sharded(x).square().mean()
            counts["forward"] = watch.alive()
            counts["most in forward"], watch.most = watch.most, 0
            loss.backward()
            counts["backward"], counts["most in backward"] = watch.alive(), watch.most
            with torch.no_grad():
                sharded(x)
            counts["evaluation"] = watch.alive()
            sharded.full_parameters()
            counts["all parameters"] = watch.alive()
        found[name] = counts
    cleanup()
    return found


def originals_in_memory() -> list[str]:
    """Parameters of the model as it was that are still in memory after sharding."""
    setup()
    model = Blocks()
    storages = {name: StorageWeakRef(p.untyped_storage()) for name, p in model.named_parameters()}
    sharded = FullyShardedByHand(model, model.blocks)
    left = [name for name, ref in storages.items() if not ref.expired()]
    assert sum(p.numel() for p in sharded.parameters()) < 200
    cleanup()
    return left


# A forward dtype that differs from that of the parameters


class RootMeanSquare(nn.Module):
    """Normalization in float32, whatever comes; its weight is small enough to be kept whole."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape and dtype."""
        wide = x.float()
        return (self.weight * wide * wide.square().mean(-1, keepdim=True).rsqrt()).to(x.dtype)


class Product(nn.Module):
    """A linear layer without bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] to [..., outputs]."""
        return torch.einsum("...i,oi->...o", x, self.weight)


class Table(nn.Module):
    """An embedding."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(tokens, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """[...] to [..., width]."""
        return self.weight[tokens]


def language_model() -> nn.Sequential:
    """Tokens to scores."""
    return nn.Sequential(
        Table(50, 32),
        RootMeanSquare(32),
        Product(32, 48),
        nn.ReLU(),
        RootMeanSquare(48),
        Product(48, 32),
        Product(32, 50),
    )


class Cast(torch.autograd.Function):
    """To a narrow dtype; the gradient comes back and is widened."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """The tensor in `dtype`."""
        return tensor.to(dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        """The gradient in float32."""
        return gradient.float(), None


def with_cast_weights(model: nn.Sequential, tokens: Tensor, dtype: torch.dtype | None) -> Tensor:
    """The one process to compare with: matrices cast for the forward, the rest as it is."""
    x = tokens
    for layer in model:
        weight = getattr(layer, "weight", None)
        if dtype and weight is not None and weight.dim() == 2:
            x = torch.func.functional_call(layer, {"weight": Cast.apply(weight, dtype)}, (x,))
        else:
            x = layer(x)
    return x


def computed_in(dtype: torch.dtype | None, by_layer: bool) -> dict[str, float]:
    """Three steps of SGD: the largest difference of a parameter from one process, by name."""
    setup()
    warnings.filterwarnings("error", message="^(?!Anomaly Detection)")  # that one we ask for
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    alone = language_model()
    model = copy.deepcopy(alone)
    blocks = [layer for layer in model if isinstance(layer, Product | Table)] if by_layer else []
    sharded = FullyShardedByHand(model, blocks, compute_dtype=dtype, keep_whole_below=49)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (alone, sharded)]
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for _ in range(STEPS):
        tokens, targets = torch.randint(50, (ROWS, 8)), torch.randint(50, (ROWS, 8))
        for optimizer in optimizers:
            optimizer.zero_grad()
        scores = with_cast_weights(alone, tokens, dtype)
        F.cross_entropy(scores.float().flatten(0, 1), targets.flatten()).backward()
        with torch.autograd.set_detect_anomaly(True):
            scores = sharded(tokens.chunk(ranks)[rank])
            assert scores.dtype == (dtype or torch.float32)
            mine = targets.chunk(ranks)[rank].flatten()
            F.cross_entropy(scores.float().flatten(0, 1), mine).backward()
        for parameter in sharded.parameters():
            assert parameter.dtype == torch.float32
            assert parameter.grad.dtype == torch.float32
            assert parameter.grad.shape == parameter.shape
        for parameter in sharded.kept_whole:
            everyone = [torch.empty_like(parameter) for _ in range(ranks)]
            dist.all_gather(everyone, parameter.grad)
            assert all(torch.equal(other, parameter.grad) for other in everyone)
        for optimizer in optimizers:
            optimizer.step()
    full = sharded.full_parameters()
    cleanup()
    return {
        name: (full[name] - parameter).abs().max().item()
        for name, parameter in alone.named_parameters()
    }


def cast_arguments() -> list[torch.dtype]:
    """The dtypes in which a module sees what it is called with, under compute_dtype bfloat16."""
    setup()
    seen = []

    class Sees(nn.Linear):
        def forward(self, x: Tensor, pair: tuple, *, named: dict) -> Tensor:
            seen.extend([x.dtype, pair[0].dtype, pair[1][0].dtype, named["mask"].dtype])
            return super().forward(x)

    sharded = FullyShardedByHand(Sees(3, 3), compute_dtype=torch.bfloat16)
    x, tokens = torch.ones(2, 3), torch.ones(2, dtype=torch.int64)
    sharded(x, (x, [tokens]), named={"mask": x.double()}).sum().backward()
    cleanup()
    return seen


# What goes wrong


class Refuses(nn.Module):
    """A block that raises when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.refuse = nn.Linear(WIDTH, WIDTH), False

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        if self.refuse:
            raise ArithmeticError("told to")
        return self.layer(x)


def after_a_forward_that_raises() -> list[str]:
    """What is not as it was afterwards: a parameter that is no piece, or a step."""
    setup()
    torch.manual_seed(0)
    model = Blocks(Refuses)
    sharded = FullyShardedByHand(model, model.blocks)
    x = torch.randn(4, WIDTH)
    before = plain(sharded, x)
    pieces = list(sharded.parameters())
    model.blocks[1].refuse = True
    try:
        sharded(x)
    except ArithmeticError:
        model.blocks[1].refuse = False
    now = list(sharded.parameters())
    wrong = [] if all(a is b for a, b in zip(pieces, now, strict=True)) else ["pieces"]
    if any(unit.whole for unit in sharded.units if unit is not sharded.units[-1]):
        wrong.append("whole parameters of a block")
    if not torch.equal(plain(sharded, x), before):
        wrong.append("loss")
    cleanup()
    return wrong


def second_derivative() -> str:
    """What backward with create_graph says."""
    setup()
    sharded = FullyShardedByHand(Blocks())
    x = torch.randn(4, WIDTH, requires_grad=True)
    try:
        torch.autograd.grad(sharded(x).square().sum(), x, create_graph=True)
    except RuntimeError as error:
        return str(error)
    return "not refused"


def imported_by_a_step(way: str) -> list[str]:
    """Modules of torch that a first step imports in this rank: the fork server lacks them."""
    before = set(sys.modules)
    importlib.import_module(f"ddp_workbook.chapters.{way}").train(epochs=1, batch_size=1797)
    return sorted(name for name in set(sys.modules) - before if name.startswith("torch"))
