"""One step of the program by hand: which rank holds what of which block, moment by moment.

In the pictures a block's weights, gradients and optimizer state are bars of one box per rank: the
box of rank r is r's own shard, in r's colour. A box is filled on a rank that holds that shard at
the moment. A full gradient is striped in the colour of the rank that computed it: it has not been
added up yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist

from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.fully_sharded_by_hand import LEARNING_RATE, FullyShardedByHand, Unit
from manyranks import figures
from manyranks.figures.palette import INK, rank_colour, tint

if TYPE_CHECKING:
    from manyranks.figures.slider import Stepper

ROWS = 64
KINDS = ("weights", "gradient", "optimizer state")
NONE, SHARD, FULL = "none", "shard", "full"
BOX, BAR, PITCH, GAP, LEFT = 0.8, 0.27, 0.35, 0.45, 2.1  # inches, of a frame
TOP, BOTTOM = 0.78, 0.2
LETTERS = {"all-gather": "G", "forward": "C", "backward": "C", "free": "F", "reduce-scatter": "R"}
STRIPES = "striped: a gradient of this rank's own samples, not averaged yet"
LEGEND = "G  all-gather      C  compute      F  free      R  reduce-scatter, and free"


class Moment(NamedTuple):
    """What one rank holds at a moment of the step: for each block "none", "shard" or "full"."""

    activity: str
    block: int | None  # the one that something happens to, from 0
    weights: tuple[str, ...]
    gradients: tuple[str, ...]
    states: tuple[str, ...]

    def parts_of(self, kind: str) -> tuple[str, ...]:
        """What it holds of one of KINDS, a word for each block."""
        return dict(zip(KINDS, (self.weights, self.gradients, self.states), strict=True))[kind]


def record_moments(width: int = 16, depth: int = 3) -> list[Moment]:
    """What this rank holds of each block, from before the step to after it.

    What is gathered for the whole step, outside the blocks, is not in it.
    """
    device = setup()
    torch.manual_seed(0)
    model = DigitsTransformer(width, depth).to(device)
    sharded = FullyShardedByHand(model, model.blocks)
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=LEARNING_RATE)
    recorder = MomentRecorder(sharded, optimizer)
    mine = slice(dist.get_rank(), ROWS, dist.get_world_size())
    digits = DigitsDataset()
    images, labels = digits.images[mine].to(device), digits.labels[mine].to(device)
    forward_and_backward(sharded, images, labels, ROWS)
    optimizer.step()
    recorder.note("AdamW, on the shards", None)
    cleanup()
    return recorder.moments


class MomentRecorder:
    """Records a moment whenever the unit of a block gathers, frees or reduces."""

    def __init__(self, sharded: FullyShardedByHand, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.units = sharded.units[:-1]  # the last one is what is left over
        self.moments: list[Moment] = []
        self.in_backward: set[int] = set()  # units whose full gradient is there
        self.note("before the step", None)
        for index, (block, unit) in enumerate(zip(sharded.module.blocks, self.units, strict=True)):
            vars(unit).update(
                all_gather=self.after(unit.all_gather, "all-gather", index),
                free=self.on_free(unit, index),
                reduce_scatter=self.on_reduce(unit, index),
            )
            block.register_forward_hook(
                lambda *_, index=index: self.note(f"forward, block {index + 1}", index),
                prepend=True,  # before the hook that frees
            )

    def note(self, activity: str, block: int | None) -> None:
        """Add a moment: what is there now."""
        self.moments.append(
            Moment(
                activity,
                block,
                tuple(FULL if unit.full else SHARD for unit in self.units),
                tuple(self._gradient(index) for index in range(len(self.units))),
                tuple(self._state(unit) for unit in self.units),
            )
        )

    def _gradient(self, index: int) -> str:
        if index in self.in_backward:
            return FULL
        return NONE if self.units[index].shards[0].grad is None else SHARD

    def _state(self, unit: Unit) -> str:
        return SHARD if unit.shards[0] in self.optimizer.state else NONE

    def after(self, method: Callable, name: str, index: int) -> Callable:
        """The method, which then records a moment."""

        def call_and_record(*args):
            result = method(*args)
            self.note(f"{name}, block {index + 1}", index)
            return result

        return call_and_record

    def on_free(self, unit: Unit, index: int) -> Callable:
        """`free`, recorded: afterwards in forward, before in backward, with full gradients."""
        free = unit.free

        def call_and_record():
            if not unit.full:
                return
            if not torch.is_grad_enabled():  # autograd is about to reduce
                self.in_backward.add(index)
                self.note(f"backward, block {index + 1}", index)
                free()
            else:
                free()
                self.note(f"free, block {index + 1}", index)

        return call_and_record

    def on_reduce(self, unit: Unit, index: int) -> Callable:
        """`reduce_scatter`, recorded when this rank has only its shard of the gradient."""
        reduce = unit.reduce_scatter

        def call_and_record(gradients):
            shards = reduce(gradients)
            self.in_backward.discard(index)
            for shard, gradient in zip(unit.shards, shards, strict=True):
                shard.grad = gradient  # autograd does this next
            self.note(f"reduce-scatter, block {index + 1}", index)
            for shard in unit.shards:
                shard.grad = None
            return shards

        return call_and_record


@figures.house_style
def strip(of_ranks: Sequence[Sequence[Moment]]) -> figures.Picture:
    """The whole step at once: a column a moment, a row a block, for each rank, weights alone."""

    ranks, moments = len(of_ranks), of_ranks[0]
    blocks = len(moments[0].weights)
    column, row, left, top = 0.335, 0.38, 1.55, 1.0  # inches
    lane = blocks * row + 0.28
    bottom = top + ranks * lane - 0.2
    axes = figures.sheet(max(figures.WIDTH, left + len(moments) * column + 0.2), bottom + 0.7)
    for name, first, last in _phases(moments):
        ends = left + first * column + 0.03, left + (last + 1) * column - 0.07
        axes.plot(ends, [0.36] * 2, color=INK, linewidth=1.2)
        axes.text(sum(ends) / 2, 0.2, name, ha="center", va="center", size=11, weight="bold")
    for number, moment in enumerate(moments):
        x = left + (number + 0.43) * column
        letter = LETTERS.get(moment.activity.partition(",")[0], "")
        for y in (top - 0.16, bottom + 0.13):  # to be read in the first row and in the last
            axes.text(x, y, letter, ha="center", va="center", size=10)
    for turn, (block, first, last) in enumerate(_turns(moments)):
        ends = left + first * column - 0.025, left + (last + 1) * column - 0.025
        if turn % 2 == 0:
            band = figures.Rectangle((ends[0], 0.42), ends[1] - ends[0], bottom - 0.12)
            band.set(facecolor=tint(INK, 0.08), linewidth=0, zorder=0)
            axes.add_patch(band)
        axes.text(sum(ends) / 2, 0.6, f"block {block + 1}", ha="center", va="center", size=10)
    for number, words in ((0, "before"), (len(moments) - 1, "AdamW")):
        x = left + (number + 0.43) * column
        axes.text(x, 0.6, words, ha="center", va="center", size=9)
    for rank, of_rank in enumerate(of_ranks):
        base = top + rank * lane
        middle = base + blocks * row / 2
        axes.text(0.1, middle, f"rank {rank}", color=rank_colour(rank), weight="bold", va="center")
        for block in range(blocks):
            y = base + block * row
            name = f"block {block + 1}"
            axes.text(left - 0.1, y + row * 0.42, name, ha="right", va="center", size=10)
            for number, moment in enumerate(of_rank):
                x, part = left + number * column, row * 0.84 / ranks
                for owner in range(ranks):
                    filled = _has(moment.weights[block], owner, rank)
                    _box(axes, x, y + owner * part, column * 0.86, part * 0.92, owner, filled)
    axes.text(left, bottom + 0.45, LEGEND, va="center", size=10)
    return figures.Picture(axes.figure, _in_words(of_ranks))


def _turns(moments: Sequence[Moment]) -> list[tuple[int, int, int]]:
    """Each run of moments about one block: the block, and the numbers of its first and last moment.

    A block's forward and its backward are two runs, also where nothing lies between them.
    """
    turns: list[tuple[int, int, int]] = []
    for number, moment in enumerate(moments):
        if moment.block is None:
            continue
        begins = moment.activity.startswith("all-gather")
        if begins or not turns:
            turns.append((moment.block, number, number))
        else:
            turns[-1] = (moment.block, turns[-1][1], number)
    return turns


def _phases(moments: Sequence[Moment]) -> list[tuple[str, int, int]]:
    """Forward and backward, each with the numbers of its first and last moment."""
    reduces = [
        n for n, moment in enumerate(moments) if moment.activity.startswith("reduce-scatter")
    ]
    forwards = [n for n, moment in enumerate(moments) if moment.activity.startswith("forward")]
    turn = forwards[-1] + 1  # the moment that frees the last block
    return [("forward", 1, turn), ("backward", turn + 1, reduces[-1])]


def _in_words(of_ranks: Sequence[Sequence[Moment]]) -> str:
    """The strip in words: at most how many blocks are unsharded, and in which order."""
    full = [[b + 1 for b, part in enumerate(m.weights) if part == FULL] for m in of_ranks[0]]
    order: list[list[int]] = []
    for blocks in full:
        if blocks and (not order or order[-1] != blocks):
            order.append(blocks)
        elif not blocks and order and order[-1]:
            order.append([])
    spoken = [" and ".join(map(str, blocks)) for blocks in order if blocks]
    most = max(map(len, full))
    return (
        f"A step on {len(of_ranks)} ranks, moment by moment. At most {most} "
        f"{'block is' if most == 1 else 'blocks are'} unsharded at a time, on all ranks alike, in "
        f"the order {', '.join(spoken)}. All else is sharded, one shard a rank."
    )


@figures.house_style
def frame(of_ranks: Sequence[Sequence[Moment]], number: int) -> figures.Picture:
    """One moment: for each rank its blocks side by side, three bars each."""

    moments = [moments[number] for moments in of_ranks]
    ranks, blocks = len(moments), len(moments[0].weights)
    block_width = ranks * BOX
    width = LEFT + blocks * (block_width + GAP)
    lane = len(KINDS) * PITCH + 0.3
    height = TOP + ranks * lane + BOTTOM
    axes = figures.sheet(width, height)
    title = f"{number + 1} of {len(of_ranks[0])}: {moments[0].activity}"
    axes.text(0.1, 0.2, title, weight="bold", va="center")
    for block in range(blocks):
        left = LEFT + block * (block_width + GAP)
        look = {"size": 10.5, "weight": "bold" if block == moments[0].block else "normal"}
        axes.text(left + block_width / 2, 0.6, f"block {block + 1}", ha="center", **look)
    for rank, moment in enumerate(moments):
        top = TOP + rank * lane
        middle = top + len(KINDS) * PITCH / 2
        axes.text(0.1, middle, f"rank {rank}", color=rank_colour(rank), weight="bold", va="center")
        for row, kind in enumerate(KINDS):
            y = top + row * PITCH
            axes.text(LEFT - 0.1, y + BAR / 2, kind, ha="right", va="center", size=10)
            for block, part in enumerate(moment.parts_of(kind)):
                local = rank if kind == "gradient" and part == FULL else None
                for owner in range(ranks):
                    x = LEFT + block * (block_width + GAP) + owner * BOX
                    _box(axes, x, y, BOX * 0.94, BAR, owner, _has(part, owner, rank), local)
    axes.text(LEFT, height - 0.2, STRIPES, va="center", size=9.5)
    words = [f"rank {rank} {_beyond_shards(moment)}" for rank, moment in enumerate(moments)]
    alt = f"Moment {number + 1}, {moments[0].activity}: {'; '.join(words)}."
    return figures.Picture(axes.figure, alt)


def slider(of_ranks: Sequence[Sequence[Moment]]) -> Stepper:
    """The moments of the step, one picture each; it opens with the first full gradient."""
    moments = of_ranks[0]
    frames = [frame(of_ranks, number) for number in range(len(moments))]
    opens = next(n for n, m in enumerate(moments) if m.activity.startswith("backward"))
    return figures.stepper(frames, name="moment", first=1, start=opens + 1)


def _beyond_shards(moment: Moment) -> str:
    words = [
        f"the {part} {kind} of block {block + 1}"
        for kind in KINDS
        for block, part in enumerate(moment.parts_of(kind))
        if part == FULL or (part == SHARD and kind == "gradient")
    ]
    words = [word.replace("the shard gradient", "its shard of the gradient") for word in words]
    return "has its shards" + (f" and {', '.join(words)}" if words else " alone")


def _has(part: str, owner: int, rank: int) -> bool:
    return part == FULL or (part == SHARD and owner == rank)


def _box(
    axes: Any,
    x: float,
    y: float,
    width: float,
    height: float,
    owner: int,
    filled: bool,
    local: int | None = None,
) -> None:
    """The box of `owner`'s shard; striped where it is what rank `local` has computed alone."""
    look = {"facecolor": rank_colour(owner), "edgecolor": INK}
    if not filled:
        look = {"facecolor": "white", "edgecolor": tint(INK, 0.45)}
    elif local is not None:
        colour = rank_colour(local)
        look = {"facecolor": tint(colour), "edgecolor": colour, "hatch": "/////"}
    axes.add_patch(figures.Rectangle((x, y), width, height, linewidth=0.6, **look))
