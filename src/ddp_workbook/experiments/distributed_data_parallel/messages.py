"""What DDP sends, call by call and line by line, also to look for parts that are not used."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import setup
from manyranks import figures
from manyranks.figures.palette import FAINT, series_colour, tint
from manyranks.recording.collectives import record_collectives

ROWS, STEPS, EVALUATIONS = 64, 3, 2
CALLS = (
    "constructor",
    *(f"{what} {number}" for number in range(1, STEPS + 1) for what in ("forward", "backward")),
    *(f"evaluation {number}" for number in range(1, EVALUATIONS + 1)),
)

SHAPES, STATE = "comparing shapes", "parameters and buffers"
BUFFERS, ORDER = "buffers", "order of the buckets"
GRADIENTS, USED = "gradients", "which parameters were used"
KINDS = (SHAPES, STATE, GRADIENTS, ORDER, BUFFERS, USED)
LINE = 0.25  # inches for each message


class Message(NamedTuple):
    """A message of one rank: one of the KINDS, and its size in bytes."""

    kind: str
    size: int


SentMessages = Mapping[
    str, Sequence[Sequence[Message]]
]  # model -> for each of the CALLS its messages


def model_with_batch_norm() -> nn.Module:
    """The model of the chapter with a BatchNorm layer, whose running statistics are buffers."""
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 10))


class ModelWithUnusedLayer(DigitsMLP):
    """The chapter's model with an output layer that forward does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(64, 10)


def separate_calls(make: Callable[[], nn.Module], **arguments) -> None:
    """A worker: the CALLS, with a barrier behind each one; `arguments` are DDP's."""
    device, digits = setup(), DigitsDataset()
    images, labels = digits.images[:ROWS].to(device), digits.labels[:ROWS].to(device)
    ddp = DistributedDataParallel(make().to(device), **arguments)
    dist.barrier()
    for _ in range(STEPS):
        scores = ddp(images)
        dist.barrier()
        F.cross_entropy(scores, labels).backward()
        dist.barrier()
    ddp.eval()
    with torch.no_grad():
        for _ in range(EVALUATIONS):
            ddp(images)
            dist.barrier()


def messages(make: Callable[[], nn.Module], ranks: int = 2, **arguments) -> list[list[Message]]:
    """For each of the CALLS the messages of rank 0. The model is `make()`, on every rank."""
    wire = record_collectives(partial(separate_calls, make), ranks=ranks, **arguments)
    messages_by_call: list[list[Message]] = [[]]
    for row in wire[wire["rank"] == 0].itertuples():
        if row.op == "barrier":
            messages_by_call.append([])
        else:
            call = CALLS[len(messages_by_call) - 1]
            messages_by_call[-1].append(
                Message(_kind(call, len(messages_by_call[-1]), row), row.bytes)
            )
    return messages_by_call[:-1]


def _kind(call: str, number: int, row: Any) -> str:
    """What a message is about, by the call that sent it, its place there, and its dtype."""
    if call == "constructor":  # it compares the models with two messages before it sends state
        return SHAPES if number < 2 else STATE
    if call.startswith("backward"):
        return USED if row.dtype == "int32" else GRADIENTS
    return ORDER if row.dtype == "int32" else BUFFERS


def with_and_without_buffers() -> dict[str, list[list[Message]]]:
    """What is sent for a model without buffers and for one with them, call by call."""
    return {"no buffers": messages(DigitsMLP), "with BatchNorm": messages(model_with_batch_norm)}


def settings_table(
    make: Callable[[], nn.Module], settings: Sequence[dict], calls: Sequence[str]
) -> pd.DataFrame:
    """A row for each setting of DDP's arguments: the bytes of each message in `calls`.

    Those of step 1 and of step 3 are forward and backward together.
    """
    rows = []
    for arguments in settings:
        messages_by_call = dict(zip(CALLS, messages(make, **arguments), strict=True))
        messages_by_call |= {
            f"step {n}": messages_by_call[f"forward {n}"] + messages_by_call[f"backward {n}"]
            for n in (1, 2, 3)
        }
        cells = {
            call: ", ".join(f"{message.size:,}" for message in messages_by_call[call]) or "-"
            for call in calls
        }
        rows.append({"arguments": in_words(arguments)} | cells)
    return pd.DataFrame(rows)


def in_words(arguments: dict) -> str:
    """The arguments as one writes them in the call."""
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items()) or "none"


@figures.house_style
def boxes(messages_of_models: SentMessages, calls: Sequence[str] = CALLS) -> figures.Picture:
    """A box for each message, with its bytes, under the call that sent it; a row for each model."""
    heights = [
        max(len(call) for call in of_calls) * LINE + 0.15
        for of_calls in messages_of_models.values()
    ]
    figure = figures.Figure((figures.WIDTH, sum(heights) + 1.15), layout="constrained")
    axes, bottom, middles = figure.subplots(), 0.0, []
    for height, of_calls in zip(heights, messages_of_models.values(), strict=True):
        for column, call in enumerate(of_calls):
            _draw_call(axes, column, bottom, height, call)
        middles.append(bottom + height / 2)
        bottom += height
    axes.set(xlim=(-0.5, len(calls) - 0.5), ylim=(bottom, 0))
    axes.set_yticks(middles, [name.replace(" ", "\n") for name in messages_of_models])
    axes.set_xticks(range(len(calls)), [call.replace(" ", "\n") for call in calls], fontsize=10)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    kinds = {
        message.kind
        for of_calls in messages_of_models.values()
        for call in of_calls
        for message in call
    }
    keys = [figures.Patch(label=kind, **_look(kind)) for kind in KINDS if kind in kinds]
    figure.legend(handles=keys, loc="outside lower left", ncols=3, handlelength=1.6)
    return figures.Picture(figure, _words(messages_of_models, calls))


def _draw_call(
    axes: figures.Axes, column: int, bottom: float, height: float, call: Sequence[Message]
) -> None:
    frame = {"facecolor": "none", "edgecolor": FAINT, "zorder": 0, "linewidth": 1}
    figures.box(axes, (column - 0.5, bottom), (1, height), frame=frame)
    top = bottom + (height - len(call) * LINE) / 2 + 0.015
    for row, message in enumerate(call):
        place, words = (column - 0.46, top + row * LINE), f"{message.size:,} B"
        figures.box(axes, place, (0.92, LINE - 0.03), words, frame=_look(message.kind))


def _look(kind: str) -> figures.FillStyle:
    colour = series_colour(KINDS.index(kind))
    return {"facecolor": tint(colour, 0.35), "edgecolor": colour, "linewidth": 1}


def _words(messages_of_models: SentMessages, calls: Sequence[str]) -> str:
    words = []
    for name, of_calls in messages_of_models.items():
        by_call = dict(zip(calls, of_calls, strict=True))
        parts = [
            f"{call}: "
            + " and ".join(f"{message.kind}, {message.size:,} bytes" for message in messages)
            for call, messages in by_call.items()
            if messages
        ]
        idle = [call for call, messages in by_call.items() if not messages]
        nothing = f" Nothing is sent in {', '.join(idle)}." if idle else ""
        words.append(f"{name}: {'; '.join(parts)}.{nothing}")
    return "What rank 0 sends in each call. " + " ".join(words)


# A model with a part that steps leave out


def steps_with_unused_layer(**arguments) -> str:
    """A worker: three steps of a model that never uses `spare`; says what gradient `spare` has."""
    device, digits = setup(), DigitsDataset()
    images, labels = digits.images[:64].to(device), digits.labels[:64].to(device)
    model = ModelWithUnusedLayer().to(device)
    ddp = DistributedDataParallel(model, **arguments)
    for step in (1, 2, 3):
        F.cross_entropy(ddp(images), labels).backward()
        print("step", step, "is done")
    dist.barrier()
    return f"the gradient of spare is {model.spare.weight.grad}"


def messages_with_unused_layer() -> pd.DataFrame:
    """The bytes of each message of rank 0 in three steps, with each argument that helps here."""
    looking: dict[str, object] = {"find_unused_parameters": True}
    small = looking | {"bucket_cap_mb": 0.001}  # so that spare's bias has a bucket of its own
    skipping = small | {"skip_all_reduce_unused_params": True}
    settings: list[dict] = [looking, {"static_graph": True}, small, skipping]
    return settings_table(ModelWithUnusedLayer, settings, ["step 1", "step 2", "step 3"])


# Three steps, line by line


def three_steps() -> None:
    """Three training steps of a model with four layers, and nothing else."""
    device, digits = setup(), DigitsDataset()
    images, labels = digits.images[:64].to(device), digits.labels[:64].to(device)
    model = DigitsMLP(depth=3).to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        scores = ddp(images)
        F.cross_entropy(scores, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()  # no rank leaves early


def messages_of_rank_0(
    worker: Callable[..., Any], ranks: int = 2, **arguments: Any
) -> pd.DataFrame:
    """Rank 0's row of each call that `worker` makes, with the text of the line behind it.

    Columns: line, op, peer (in words, "" if there is none), dtype, bytes.
    """
    wire = record_collectives(worker, ranks=ranks, **arguments).query("rank == 0")
    with open(inspect.getsourcefile(worker) or "", encoding="utf-8") as file:
        lines = ["", *(line.partition("  #")[0].strip() for line in file)]
    numbers = wire["line"].str.rpartition(":")[2].astype(int)
    peers = ["" if pd.isna(peer) else f"rank {peer}" for peer in wire["peer"]]
    columns = ["line", "op", "peer", "dtype", "bytes"]
    texts = [lines[number] for number in numbers]
    return wire.assign(line=texts, peer=peers)[columns].reset_index(drop=True)
