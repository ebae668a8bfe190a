"""Communication hooks: what each sends, what the training makes of it, and how long a step takes.

PowerSGD starts its own all-reduces in callbacks. With several buckets on gloo, the ranks may start
them in different orders, and then abort or hang (torch 2.13): so it gets a single bucket here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.nn.parallel import DistributedDataParallel

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, accuracy, batches
from ddp_workbook.chapters.distributed_data_parallel import forward_and_backward, setup
from ddp_workbook.chapters.make_it_fast import Step
from ddp_workbook.experiments.collectives.message_times import time_steps
from ddp_workbook.experiments.make_it_fast.ladder import (
    ALONE,
    RANKS,
    rungs_plot,
    silent,
    steps_on_digits,
    table_of,
)
from manyranks import figures
from manyranks.errors import RankFailed
from manyranks.launcher.launch import launch
from manyranks.network.emulated_work import record_completed_calls

Register = Callable[[DistributedDataParallel], None]


# What the page shows


def with_error_feedback(gradient: Tensor, remainder: Tensor, compress: Callable) -> Tensor:
    """The mean over the ranks of what `compress` lets through; `remainder` keeps the rest."""
    remainder += gradient  # what earlier steps have not sent comes along
    message = compress(remainder)
    remainder -= message  # each rank keeps its own remainder
    dist.all_reduce(message)
    return message / dist.get_world_size()


def half_as_bfloat16(group, bucket):
    """PyTorch's hook, under a name that DDP does not refuse on gloo."""
    return default_hooks.bf16_compress_hook(group, bucket)


def register_float16(model: DistributedDataParallel) -> None:
    """A hook written in Python."""
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)


def register_built_in(model: DistributedDataParallel) -> None:
    """The same hook in C++: backward need not call Python."""
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)


def register_powersgd(model: DistributedDataParallel, rank: int = 1, **options: object) -> None:
    """PowerSGD from the third step on: DDP makes its buckets anew after the first."""
    options = {"start_powerSGD_iter": 2} | options
    state = PowerSGDState(None, matrix_approximation_rank=rank, **options)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


NONE, FLOAT16, BUILT_IN, BFLOAT16 = "no hook", "float16", "float16, built-in", "bfloat16"
FEEDBACK, WITHOUT = "PowerSGD", "PowerSGD without feedback"
NO_WARM_START, LATE = f"{FEEDBACK} rank 2, no warm start", f"{WITHOUT} rank 1, from step 30"
POWERS = (1, 2, 4)
HOOKS: dict[str, Register] = {
    NONE: lambda model: None,
    FLOAT16: register_float16,
    BUILT_IN: register_built_in,
    BFLOAT16: lambda model: model.register_comm_hook(None, half_as_bfloat16),
}
for power in POWERS:
    HOOKS[f"{FEEDBACK} rank {power}"] = partial(register_powersgd, rank=power)
for power in POWERS:
    HOOKS[f"{WITHOUT} rank {power}"] = partial(
        register_powersgd, rank=power, use_error_feedback=False
    )
HOOKS[NO_WARM_START] = partial(register_powersgd, rank=2, warm_start=False)
HOOKS[LATE] = partial(register_powersgd, use_error_feedback=False, start_powerSGD_iter=30)


def ddp_with_hook(name: str, model: nn.Module) -> DistributedDataParallel:
    """The model in DDP with this hook, in buckets of 1 MiB unless it is PowerSGD."""
    ddp = DistributedDataParallel(model, bucket_cap_mb=1000 if FEEDBACK in name else 1)
    HOOKS[name](ddp)
    return ddp


# Loss against bytes

EPOCHS, BATCH_SIZE, WIDTH, DEPTH = 4, 64, 256, 2  # 116 steps, 340 kB of gradients
COUNTING_NETWORK = (
    "NVLink 4"  # calls are counted where a network is ordered; this one delays nobody
)


class Run(NamedTuple):
    """A training: bytes that a rank hands to all-reduces a step, and what came of it."""

    bytes: float
    loss: float
    accuracy: float


def trainings(names: list[str] | None = None) -> pd.DataFrame:
    """Train the digits with each hook, from the same weights on the same batches."""
    names = names or [name for name in HOOKS if name != BUILT_IN]
    runs = launch(train_with_hooks, names, ranks=RANKS, network=COUNTING_NETWORK, timeout=300)[0]
    table = pd.DataFrame.from_dict(runs, orient="index", columns=Run._fields)
    return table.rename_axis("hook")


def train_with_hooks(names: list[str]) -> dict[str, Run]:
    """In a rank: a training for each name."""
    device = setup()
    return {name: train(name, device) for name in names}


def train(name: str, device: torch.device, rate: float = 0.05) -> Run:
    """The loop of every chapter, with this hook; the loss is that of all digits at the end."""
    digits = DigitsDataset()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    torch.manual_seed(0)
    model = DigitsMLP(WIDTH, DEPTH).to(device)
    ddp = ddp_with_hook(name, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    calls, steps = record_completed_calls(), 0
    for epoch in range(EPOCHS):
        for images, labels in batches(digits, BATCH_SIZE, epoch):
            optimizer.zero_grad()
            scores = ddp(images[mine].to(device))
            F.cross_entropy(scores, labels[mine].to(device)).backward()
            optimizer.step()
            steps += 1
    size = sum(call.size for call in calls) / steps
    with torch.no_grad():
        scores = model(digits.images.to(device))
        loss = F.cross_entropy(scores, digits.labels.to(device)).item()
    return Run(size, loss, accuracy(model, digits))


@figures.house_style
def loss_against_bytes(table: pd.DataFrame) -> figures.Picture:
    """The loss at the end, by kB a step: of whole gradients, and of PowerSGD."""
    lines = {"every number": [FLOAT16, NONE]} | {
        family: [f"{family} rank {power}" for power in POWERS] for family in (FEEDBACK, WITHOUT)
    }
    columns = {
        line: pd.Series(
            [table.loss[name] for name in names],
            index=[round(table.bytes[name] / 1e3, 1) for name in names],
        )
        for line, names in lines.items()
    }
    wide = pd.DataFrame(columns).sort_index().rename_axis("kB a rank hands in, a step")
    about = f"The loss after {EPOCHS} epochs"
    picture = figures.lines(wide, "loss on all digits", about, log="xy")
    axes = picture.axes
    axes.set_title(about, loc="left")
    for name in (NONE, FLOAT16, *(f"{WITHOUT} rank {power}" for power in POWERS)):
        where = round(table.bytes[name] / 1e3, 1), table.loss[name]
        words = name.removeprefix(f"{WITHOUT} ")
        axes.annotate(words, where, (6, 5), textcoords="offset points", size=9)
    for line in axes.lines:
        line.set_markevery(1)
    axes.margins(x=0.1, y=0.12)
    return picture


def trainings_table(table: pd.DataFrame) -> pd.DataFrame:
    """The same runs, for reading."""
    return pd.DataFrame(
        {
            "hook": table.index,
            "kB a step": [f"{size / 1e3:.1f}" for size in table.bytes],
            "loss at the end": [f"{loss:.3f}" for loss in table.loss],
            "digits right": [f"{share:.1%}" for share in table.accuracy],
        }
    )


# What a remainder does

STEPS = 20


def play_remainder() -> ddp_workbook.Play:
    """One number a step on two ranks, rounded before it travels; with and without feedback."""
    return ddp_workbook.play(
        error_feedback_sums,
        remainder_plot,
        ranks=RANKS,
        stills=[{"gradient": 0.3}, {"gradient": 0.3, "unit": 0.25}, {"gradient": 0.7}],
        gradient=ddp_workbook.slider("gradient in each step", (0.1, 0.3, 0.45, 0.7, 0.9), 0.3),
        unit=ddp_workbook.slider("rounded to multiples of", (0.25, 0.5, 1), 1),
    )


def error_feedback_sums(gradient: float, unit: float) -> dict[str, list[float]]:
    """A worker: the sums of what has been applied after each step; rank 1's gradient is smaller."""
    setup()
    own = torch.tensor([gradient - 0.02 * dist.get_rank()])

    def rounded(number: Tensor) -> Tensor:
        return unit * torch.round(number / unit)

    remainders = {True: torch.zeros(1), False: torch.zeros(1)}
    sums_by_feedback = {True: [0.0], False: [0.0]}
    for _ in range(STEPS):
        for feedback, sums in sums_by_feedback.items():
            if not feedback:
                remainders[feedback].zero_()
            step = with_error_feedback(own, remainders[feedback], rounded)
            sums.append(sums[-1] + step.item())
    dist.all_reduce(own)
    true = [step * own.item() / dist.get_world_size() for step in range(STEPS + 1)]
    return {
        "true": true,
        "with feedback": sums_by_feedback[True],
        "without": sums_by_feedback[False],
    }


@figures.house_style
def remainder_plot(of_ranks: list[dict], unit: float, **_: object) -> figures.Picture:
    """The sums of the steps: true, with the remainder carried, and with the remainder dropped."""
    table = pd.DataFrame(of_ranks[0]).rename_axis("steps made")
    about = f"What the steps add up to, sent in multiples of {unit:g}"
    picture = figures.lines(table, "sum of the averaged gradients", about)
    picture.axes.set_title(about, loc="left")
    picture.axes.xaxis.set_major_locator(figures.MaxNLocator(integer=True))
    return picture


# How long a step takes

LAYERS, UNITS, ROWS, ROUNDS = 8, 256, 256, 4  # 2 MB of gradients
LINKS = ("100 Mbit/s, 0.5 ms", "300 Mbit/s, 0.5 ms", "1 Gbit/s, 0.5 ms", "Ethernet 10G")
PLAY_HOOKS = (FLOAT16, BFLOAT16, *(f"{FEEDBACK} rank {power}" for power in POWERS))


def play_hook() -> ddp_workbook.Play:
    """A hook beside none, and beside no communication, on a network."""
    return ddp_workbook.play(
        time_hook,
        lambda of_ranks, **controls: steps_plot(table_of(of_ranks), controls["network"]),
        ranks=RANKS,
        stills=[
            {"hook": FLOAT16},
            {"hook": PLAY_HOOKS[2]},
            {"hook": FLOAT16, "network": LINKS[-1]},
            {"hook": PLAY_HOOKS[2], "network": LINKS[-1]},
        ],
        hook=ddp_workbook.slider("hook", PLAY_HOOKS, FLOAT16),
        network=ddp_workbook.slider("network", LINKS, LINKS[0]),
    )


def time_hook(hook: str) -> dict[str, list[float]]:
    """A worker: the seconds of a step with this hook, with none, and without communication."""
    return seconds_of([NONE, hook])


def seconds_of(names: list[str], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """In a rank: for each hook, and for no communication, the seconds of each round."""
    step_of = steps_on_digits(UNITS, LAYERS)

    def make_step(model: nn.Module, name: str) -> Step:
        return partial(forward_and_backward, ddp_with_hook(name, model))

    steps = {name: step_of(partial(make_step, name=name), ROWS) for name in names}
    return time_steps({ALONE: step_of(silent, ROWS)} | steps, rounds)


def measure(rounds: int = 12) -> pd.DataFrame:
    """Milliseconds of a step within this machine, where a hook has no network to save."""
    return table_of(launch(seconds_of, [NONE, BUILT_IN, *PLAY_HOOKS], rounds, ranks=RANKS))


def steps_plot(table: pd.DataFrame, network: str | None = None) -> figures.Picture:
    """A bar a hook: what computes without any communication, and what comes on top."""
    return rungs_plot(table.rename(columns={"exposed": "added"}), network, rows=ROWS)


# What does not run on gloo


def hooks_on_gloo() -> pd.DataFrame:
    """Each of PyTorch's hooks in four steps on gloo: does it run, and if not, what is raised?"""
    return pd.DataFrame(
        [{"hook": name, "on gloo": what_happens(name)} for name in HOOKS_TO_TRY],
    )


def what_happens(name: str) -> str:
    """ "runs", or the error of the first rank that fails."""
    try:
        launch(four_steps, name, ranks=RANKS, timeout=60)
    except RankFailed as failure:
        first = str(failure).strip().splitlines()[0].partition(" failed: ")[2]
        return first.rpartition("callback: ")[2]  # the error, not those that repeat it
    return "runs"


def four_steps(name: str) -> None:
    """A worker: four steps with one of PyTorch's hooks, as it is."""
    setup()
    ddp = DistributedDataParallel(DigitsMLP(WIDTH, DEPTH))
    HOOKS_TO_TRY[name](ddp)
    for _ in range(4):
        ddp(torch.ones(2, 64)).sum().backward()


def with_group(hook: str, module: str = "default_hooks") -> Register:
    """Register a hook whose state is the group."""

    def register(model: DistributedDataParallel) -> None:
        from importlib import import_module

        hooks_module = import_module(f"torch.distributed.algorithms.ddp_comm_hooks.{module}")
        model.register_comm_hook(dist.group.WORLD, getattr(hooks_module, hook))

    return register


def register_batched(model: DistributedDataParallel) -> None:
    """PowerSGD on the whole bucket as one square matrix."""
    state = PowerSGDState(None, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.batched_powerSGD_hook)


QUANTIZATION = "quantization_hooks"
HOOKS_TO_TRY: dict[str, Register] = {
    "fp16_compress_hook": register_float16,
    "built-in FP16_COMPRESS": register_built_in,
    "bf16_compress_hook": with_group("bf16_compress_hook"),
    "half_as_bfloat16, which calls it": HOOKS[BFLOAT16],
    "powerSGD_hook": register_powersgd,
    "batched_powerSGD_hook": register_batched,
    "quantization_pertensor_hook": with_group("quantization_pertensor_hook", QUANTIZATION),
    "quantization_perchannel_hook": with_group("quantization_perchannel_hook", QUANTIZATION),
}
