"""What one NVIDIA GPU can show:  python -m benchmarks.gpu.measurements memory

A measurement is a dict of cases; each case is a function that returns rows, and the keys of a row
are the columns of the table in data/gpu, whose README explains them. A case that fails, a model too
wide for a small GPU for instance, leaves the others alone. All of them also run on a CPU, where
nothing counts the bytes of an allocator: those columns stay empty.
"""

import contextlib
import gc
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ddp_workbook.chapters import fully_sharded_real_run as program
from ddp_workbook.chapters.digits import CLASSES, PIXELS, SIDE, DigitsTransformer
from ddp_workbook.chapters.fully_sharded_real_run import Settings
from ddp_workbook.experiments.data_parallel.step_times import Size
from ddp_workbook.experiments.fully_sharded.strategies import FAKE, STRATEGIES, Strategy, group
from ddp_workbook.experiments.gpu_tables import FOLDER
from manyranks.files import write_atomically
from manyranks.recording.timing import compare, speed_up, summary, synchronise, time_step

SMALL, WIDE = Size(64, 3, 64), Size(1024, 8, 1024)  # the page's model; one that fills a GPU
HEAVY = (Size(1024, 4, 1024), Size(2048, 4, 1024))  # nearly all of a step is matrix products
BATCHES = (64, 256, 1024)
# 1.2 billion parameters: 19 GB with gradients and AdamW's state, and the activations.
LANGUAGE = Settings(layers=24, width=2048, heads=16, length=2048, batch=4, micro_batch=4, bf16=True)
MEBIBYTES = (1, 16, 256)  # of a copy
RANKS = 8  # of the fake world, in which this process is rank 0
MOMENTS = ("built", "forward", "backward", "optimizer step", "zero_grad", "next step")
ROUNDS, CASE_BUDGET_S = 30, 8.0  # at most, for the timings of one case

Row = dict[str, Any]
Cases = dict[str, Callable[[], list[Row]]]


# Memory: the ledger's third column


def memory(device: torch.device, sizes: Sequence[Size] = (SMALL, WIDE)) -> Cases:
    """Bytes on the device after each part of a training step, for every strategy.

    counted_bytes is what parameters, gradients and optimizer state hold on this rank;
    allocated_bytes is `torch.cuda.memory_allocated()`, which also has activations, buckets and
    unsharded parameters; peak_bytes is `max_memory_allocated()` since the row before. Both are
    without what was allocated before the model: the batch, and the workspace of cuBLAS.
    """
    return {
        f"{run.strategy.name}, {run.ranks} ranks, {_words(size)}": partial(
            _ledger, run, size, device
        )
        for size in sizes
        for run in RUNS
    }


class Run(NamedTuple):
    """A strategy of chapter 06 on rank 0 of `ranks`.

    With the fake backend this process allocates what that rank would, and nothing is sent, so bytes
    are real and numbers are not. At 1 rank `fully_shard` gathers nothing (torch 2.13), so the
    unsharded pieces show in a fake world only.
    """

    strategy: Strategy
    ranks: int = 1

    def backend(self, device: torch.device) -> str:
        """nccl or gloo for a real group, "fake", or "" without a group."""
        if self.strategy.kind == "one process":
            return ""
        return FAKE if self.ranks > 1 else "nccl" if device.type == "cuda" else "gloo"


PLAIN, CHECKPOINTED = (
    STRATEGIES["one process"],
    Strategy("one process, checkpointing", "one process", checkpointing=True),
)
VIEWS = {"gradient_as_bucket_view": True}
RUNS = (
    Run(PLAIN),
    Run(Strategy("one process, bf16 autocast", "one process", precision="bf16")),
    Run(CHECKPOINTED),
    Run(STRATEGIES["DDP"]),
    Run(Strategy("DDP, gradient_as_bucket_view", "DDP", VIEWS)),
    Run(Strategy("ZeRO-1, without DDP's buckets", "ZeRO-1"), RANKS),
    Run(STRATEGIES["fully_shard"]),
    *(
        Run(STRATEGIES[name], RANKS)
        for name in ("fully_shard", "blocks stay gathered", "bf16", "checkpointing", "CPU offload")
    ),
    Run(Strategy("HSDP, 2 x 4", replicas=2), RANKS),
)


def _ledger(run: Run, size: Size, device: torch.device) -> list[Row]:
    backend = run.backend(device)
    about = size._asdict() | {"strategy": run.strategy.name, "backend": backend}
    with group(backend, run.ranks, device):
        moments = _moments(run.strategy, size, device)
    return [about | {"ranks": run.ranks, "after": after} | row for after, row in moments]


def _moments(strategy: Strategy, size: Size, device: torch.device) -> list[tuple[str, Row]]:
    """(moment, bytes) of a first training step, part by part, and of a second one as a whole."""
    images, labels = batch_of(size, device)
    _allocate_workspaces(size, device)
    meter = Meter(device)
    model = strategy.wrap(new_model(size, device), device)
    optimizer = strategy.optimizer(model)
    loss: Tensor | None = None

    def forward() -> None:
        nonlocal loss
        with torch.autocast(device.type, torch.bfloat16, enabled=strategy.autocast):
            loss = F.cross_entropy(model(images), labels)

    def backward() -> None:
        nonlocal loss
        assert loss is not None
        loss.backward()
        loss = None

    def whole_step() -> None:  # DDP has its final buckets now, AdamW its state
        for part in (forward, backward, optimizer.step, optimizer.zero_grad):
            part()

    parts = (lambda: None, forward, backward, optimizer.step, optimizer.zero_grad, whole_step)
    rows = []
    for moment, part in zip(MOMENTS, parts, strict=True):
        part()
        rows.append((moment, {"counted_bytes": state_bytes(model, optimizer)} | meter.read()))
    return rows


class Meter:
    """What torch's allocator holds on a device beyond what it held at the start; None on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.before = device, 0
        if device.type == "cuda":
            gc.collect()
            synchronise(device)
            self.before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)

    def read(self) -> Row:
        """allocated_bytes now, and peak_bytes since the last reading."""
        if self.device.type != "cuda":
            return {"allocated_bytes": None, "peak_bytes": None}
        synchronise(self.device)  # a block that another stream has used is free only after that
        now = torch.cuda.memory_allocated(self.device) - self.before
        peak = torch.cuda.max_memory_allocated(self.device) - self.before
        torch.cuda.reset_peak_memory_stats(self.device)
        return {"allocated_bytes": now, "peak_bytes": peak}


def state_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of parameters, gradients and optimizer state of this rank, without padding.

    What is offloaded to the host counts as well; parameters that are whole now count as whole.
    AdamW's count of steps, a number for each parameter, is left out: it stays on the CPU.
    """
    parameters = list(model.parameters())
    gradients = [tensor.grad for tensor in parameters if tensor.grad is not None]
    own = getattr(optimizer, "optim", optimizer)  # ZeroRedundancyOptimizer keeps one inside
    state = [value for entry in own.state.values() for value in entry.values()]
    moments = [tensor for tensor in state if isinstance(tensor, Tensor) and tensor.dim()]
    return sum(_local(tensor).nbytes for tensor in [*parameters, *gradients, *moments])


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _allocate_workspaces(size: Size, device: torch.device) -> None:
    """Run the same products once: cuBLAS then has its workspaces, and keeps them.

    A thread has its own, backward's too: 32 MiB on Hopper, which would count as the model's.
    """
    model = new_model(size, device)
    images, labels = batch_of(size, device)
    for autocast in (False, True):
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()


# Memory that forward keeps for backward


def activations(
    device: torch.device,
    batches: Sequence[int] = BATCHES,
    size: Size = WIDE,
    rounds: int = ROUNDS,
) -> Cases:
    """Bytes that forward leaves for backward, with and without checkpoints, by batch size.

    activation_bytes is what the allocator holds more after forward than before; peak_bytes that of
    a whole step, without parameters, optimizer state and batch. The times are those of a step:
    checkpointing runs each block's forward twice.
    """
    return {
        f"batch {batch}, {label}": partial(
            _activations, size._replace(batch=batch), label, strategy, device, rounds
        )
        for batch in batches
        for label, strategy in (("none", PLAIN), ("each block", CHECKPOINTED))
    }


def _activations(
    size: Size, label: str, strategy: Strategy, device: torch.device, rounds: int
) -> list[Row]:
    model = strategy.wrap(new_model(size, device), device)
    step = training_step(model, size, device)
    images, labels = batch_of(size, device)
    step()  # optimizer state and workspaces are there now
    model.zero_grad()
    meter = Meter(device)
    loss = F.cross_entropy(model(images), labels)
    after_forward = meter.read()
    loss.backward()
    after_backward = meter.read()
    row = {
        "activation_bytes": after_forward["allocated_bytes"],
        "peak_bytes": after_backward["peak_bytes"],
    }
    frame = compare({label: _timing_of(step, device)}, rounds, budget=CASE_BUDGET_S / 4)
    times = _times(summary(frame).iloc[0])
    return [size._asdict() | {"checkpointing": label} | row | times]


# Seconds a step


def precision(device: torch.device, sizes: Sequence[Size] = HEAVY, rounds: int = ROUNDS) -> Cases:
    """Milliseconds a step of fp32, TF32, bf16 and fp16; what the others compare with comes first.

    tflop_per_s counts 6 operations for each parameter and token (Kaplan et al. 2020, "Scaling Laws
    for Neural Language Models", arXiv 2001.08361, section 2.1), so attention itself is not in it.
    """
    return {_words(size): partial(_precision, size, device, rounds) for size in sizes}


def _precision(size: Size, device: torch.device, rounds: int) -> list[Row]:
    model = new_model(size, device)
    step = training_step(model, size, device)
    own = training_step(new_model(size, device).to(torch.bfloat16), size, device, torch.bfloat16)

    def in_tf32() -> None:
        torch.set_float32_matmul_precision("high")
        try:
            step()
        finally:
            torch.set_float32_matmul_precision("highest")

    def with_autocast() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            step()

    steps = {
        "fp32": step,
        "TF32": in_tf32,
        "bf16 autocast": with_autocast,
        "fp16 autocast, loss scaled": training_step(model, size, device, scaled=True),
        "bf16 weights and state": own,
    }
    rows = _compare_steps(steps, size, device, rounds)
    operations = 6 * sum(parameter.numel() for parameter in model.parameters()) * size.batch * SIDE
    for row in rows:
        row["times_as_fast"] = row.pop("ratio")
        row["tflop_per_s"] = operations / row["median_ms"] / 1e9
    return rows


def one_rank(
    device: torch.device, sizes: Sequence[Size] = (SMALL, WIDE), rounds: int = ROUNDS
) -> Cases:
    """Milliseconds a step of the plain loop, of DDP and of `fully_shard` in a group of one rank.

    Nothing needs to be sent, so what is left is the price of their own work: hooks, copies, and
    launching it all.
    """
    return {_words(size): partial(_one_rank, size, device, rounds) for size in sizes}


def _one_rank(size: Size, device: torch.device, rounds: int) -> list[Row]:
    ways = {"plain loop": PLAIN} | {name: STRATEGIES[name] for name in ("DDP", "fully_shard")}
    with group("nccl" if device.type == "cuda" else "gloo", 1, device):
        steps = {
            name: training_step(way.wrap(new_model(size, device), device), size, device)
            for name, way in ways.items()
        }
        rows = _compare_steps(steps, size, device, rounds)
        steps.clear()
        gc.collect()  # DDP before its group
    for row in rows:
        row["times_as_long"] = 1 / row.pop("ratio")
    return rows


def _compare_steps(
    steps: Mapping[str, Callable], size: Size, device: torch.device, rounds: int
) -> list[Row]:
    """A row a candidate; `ratio`: how many times as fast as the first, median of the rounds."""
    candidates = {name: _timing_of(step, device) for name, step in steps.items()}
    frame = compare(candidates, rounds, warm_up=3, budget=CASE_BUDGET_S)
    ratios = speed_up(frame, next(iter(steps))).set_index("candidate")["median"]
    return [
        size._asdict()
        | {"candidate": row["candidate"], "ratio": ratios[row["candidate"]]}
        | _times(row)
        for _, row in summary(frame).iterrows()
    ]


def _timing_of(step: Callable, device: torch.device) -> Callable[[], list[float]]:
    return partial(time_step, step, warm_up=0, repeats=1, device=device)


def _times(row: pd.Series) -> Row:
    times = {f"{which}_ms": 1e3 * row[which] for which in ("median", "q1", "q3")}
    return times | {"steps": int(row["n"])}


# The language model


def real_run(
    device: torch.device,
    settings: Settings = LANGUAGE,
    backend: str = "inductor",
    rounds: int = ROUNDS,
) -> Cases:
    """A step of page 06's language model in a group of one rank: tokens a second, MFU, memory.

    With each kind of checkpointing, and compiled by `backend`. mfu_percent is empty if the
    program does not know the GPU. peak_bytes is that of a whole step, with all that is kept.
    """
    changes: dict[str, dict[str, Any]] = {
        "checkpointing none": {"checkpointing": "none"},
        "selective": {},
        "full": {"checkpointing": "full"},
        "selective, compiled": {"compile": backend},
    }
    return {
        name: partial(_real_run, replace(settings, **change), device, rounds)
        for name, change in changes.items()
    }


def _real_run(settings: Settings, device: torch.device, rounds: int) -> list[Row]:
    text = torch.randint(256, (2**20,), dtype=torch.uint8)  # as good as any for the seconds
    with group("nccl" if device.type == "cuda" else "gloo", 1, device):
        meter = Meter(device)
        model, optimizer = program.build(settings, device)

        def step() -> None:
            program.training_step(model, optimizer, text, settings, 0)

        step()  # optimizer state and compiled code are there now
        meter.read()
        step()
        peak = meter.read()["peak_bytes"]
        frame = compare({"": _timing_of(step, device)}, rounds, warm_up=1, budget=CASE_BUDGET_S)
    times = _times(summary(frame).iloc[0])
    rate = settings.batch * settings.length / (times["median_ms"] / 1e3)
    about = {name: getattr(settings, name) for name in ("layers", "width", "length", "batch")}
    about |= {"checkpointing": settings.checkpointing, "compiled": bool(settings.compile)}
    share = program.flops_per_token(model, settings) * rate / program.peak_flops(device)
    speed = {"tokens_per_s": rate, "mfu_percent": 100 * share}
    return [about | {"peak_bytes": peak} | times | speed]


# Copies to the device


def copies(
    device: torch.device, mebibytes: Sequence[int] = MEBIBYTES, rounds: int = ROUNDS
) -> Cases:
    """GB/s (10^9 bytes) from the host's memory to the device, pageable and pinned.

    returns_after_ms is how long the call itself takes. With pinned memory and `non_blocking` it
    returns before the copy is done; from pageable memory it cannot.
    """
    return {
        f"{size} MiB, {memory}, non_blocking={non_blocking}": partial(
            _copies, size, memory, non_blocking, device, rounds
        )
        for size in mebibytes
        for memory in ("pageable", "pinned")
        for non_blocking in (False, True)
    }


def _copies(
    mebibytes: int, memory: str, non_blocking: bool, device: torch.device, rounds: int
) -> list[Row]:
    source = torch.ones(mebibytes * 2**20, dtype=torch.uint8)  # ones: pages that are really there
    if memory == "pinned" and device.type == "cuda":
        source = source.pin_memory()
    target = torch.empty_like(source, device=device)

    def copy() -> None:
        target.copy_(source, non_blocking=non_blocking)

    seconds = time_step(copy, warm_up=3, repeats=rounds, device=device)
    rates = pd.Series([source.nbytes / 1e9 / duration for duration in seconds])
    q1, middle, q3 = rates.quantile([0.25, 0.5, 0.75])
    about = {"mebibytes": mebibytes, "host_memory": memory, "non_blocking": non_blocking}
    row = {"median_gb_per_s": middle, "q1_gb_per_s": q1, "q3_gb_per_s": q3, "copies": rounds}
    return_seconds = median(_until_it_returns(copy, device) for _ in range(rounds))
    return [about | row | {"returns_after_ms": 1e3 * return_seconds}]


def _until_it_returns(call: Callable, device: torch.device) -> float:
    """Seconds of the call alone, which may leave work behind on the device."""
    synchronise(device)
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    synchronise(device)
    return seconds


# Models and batches


def new_model(size: Size, device: torch.device) -> DigitsTransformer:
    """A DigitsTransformer on the device, always with the same weights."""
    torch.manual_seed(0)
    return DigitsTransformer(size.width, size.depth).to(device)


def batch_of(size: Size, device: torch.device) -> tuple[Tensor, Tensor]:
    """Images [batch, 64] and labels [batch] of noise: bytes and seconds do not depend on them."""
    images = torch.rand(size.batch, len(PIXELS), device=device)
    return images, torch.randint(CLASSES, (size.batch,), device=device)


def training_step(
    model: nn.Module,
    size: Size,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    scaled: bool = False,
) -> Callable[[], None]:
    """A function that does one step with AdamW on a batch of `dtype` that is on the device already.

    `scaled`: under autocast to float16, with a scaled loss.
    """
    images, labels = batch_of(size, device)
    images = images.to(dtype)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler(device.type, enabled=scaled)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.float16) if scaled else contextlib.nullcontext():
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def _words(size: Size) -> str:
    return f"width {size.width}, depth {size.depth}, batch {size.batch}"


# Measured, and recorded

MEASUREMENTS: dict[str, Callable[..., Cases]] = {
    "memory": memory,
    "activations": activations,
    "precision": precision,
    "one_rank": one_rank,
    "real_run": real_run,
    "copies": copies,
}


def measure(name: str, device: torch.device, folder: Path = FOLDER, **smaller: Any) -> str:
    """Measure and record; return what failed in words, or "".

    Cases that succeed are recorded even if others fail. `smaller` goes to the measurement.
    """
    rows, failed = run_cases(MEASUREMENTS[name](device, **smaller))
    if rows:
        print(record(name, rows, name_of(device), folder))
    for case, text in failed.items():
        print(f"\n{case}\n{text}")
    errors = [f"{case}: {text.splitlines()[-1]}" for case, text in failed.items()]
    suffix = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    return errors[0] + suffix if errors else ""


def run_cases(cases: Cases) -> tuple[list[Row], dict[str, str]]:
    """The rows of all cases that succeed, and the traceback of each that does not."""
    rows, tracebacks = [], {}
    for name, case in cases.items():
        try:
            rows += case()
        except Exception:  # text alone is kept: a traceback would hold on to the tensors
            tracebacks[name] = traceback.format_exc()
        gc.collect()  # DDP and FSDP leave cycles
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
    return rows, tracebacks


def record(name: str, rows: Sequence[Row], machine: str, folder: Path = FOLDER) -> Path:
    """Write rows of a measurement, whole or not at all; return the CSV's path."""
    head = {"machine": machine, "date": date.today().isoformat()}
    frame = pd.DataFrame([head | row for row in rows])
    text = frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    return write_atomically(folder / f"{name}.csv", text)


def name_of(device: torch.device) -> str:
    """The GPU's name with the versions of torch and CUDA; no name of a host."""
    if device.type != "cuda":
        return f"CPU, torch {torch.__version__}"
    gpu = torch.cuda.get_device_name(device)
    return f"{gpu}, torch {torch.__version__}, CUDA {torch.version.cuda}"


if __name__ == "__main__":
    torch.cuda.set_device(0)
    sys.exit(measure(sys.argv[1], torch.device("cuda", 0)) or None)
