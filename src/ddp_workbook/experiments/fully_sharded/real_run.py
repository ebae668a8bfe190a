"""The language model: equal to one process, switch by switch, and its MFU beside published ones."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.utils.flop_counter import FlopCounterMode

from ddp_workbook.chapters import fully_sharded_real_run as program
from ddp_workbook.chapters.digits import furthest
from ddp_workbook.chapters.distributed_data_parallel import cleanup
from ddp_workbook.chapters.fully_sharded import shard_by_block
from ddp_workbook.chapters.fully_sharded_real_run import Decoder, Settings
from ddp_workbook.experiments.fully_sharded.strategies import OPS
from manyranks import figures
from manyranks.launcher.launch import launch
from manyranks.recording.dispatch_mode import Recorder
from manyranks.recording.memory import MemoryBreakdown, MemoryLedger

TEXT = Path(__file__).parents[4] / "data" / "alice.txt"
RANKS = 4  # at most, on the page
KB = 1000
H100 = 989e12  # bf16 operations a second, dense: see planning/hardware.py


class RunResult(NamedTuple):
    """The loss and the gradient's norm of each step from `first_step` on, and the last weights."""

    first_step: int
    losses: list[float]
    norms: list[float]
    weights: dict[str, Tensor]


# Equal to one process


def on_ranks(ranks: int, settings: Settings) -> RunResult:
    """Run the program, with a line of its log for each step."""
    log = launch(train_without_log, replace(settings, log_every=1), ranks=ranks, timeout=600)[0]
    losses, norms = ([line[name] for line in log] for name in ("loss", "norm"))
    return RunResult(settings.steps - len(log), losses, norms, weights_in(settings.checkpoints))


def train_without_log(settings: Settings) -> list[dict[str, float]]:
    """A worker: the program, without its lines."""
    with force_equal_devices(), patch.object(program, "print", lambda *_: None, create=True):
        return program.train(settings)


def force_equal_devices() -> AbstractContextManager:
    """No GPU, unless all of a page's ranks have one: another device begins with other weights."""
    few = torch.cuda.device_count() < RANKS
    return patch.object(torch.cuda, "is_available", lambda: False) if few else nullcontext()


def weights_in(folder: Path) -> dict[str, Tensor]:
    """The weights of the newest checkpoint in this folder, whole, without any ranks."""
    whole = folder / "whole.pt"
    dcp_to_torch_save(max(folder.glob("step_*")), whole)
    return torch.load(whole, weights_only=True)["model"]


def run_one_process(settings: Settings) -> RunResult:
    """What the ranks must equal: one process that knows no `fully_shard`, whole batches at once.

    Only data, first weights and learning rate are the program's own.
    """
    return launch(plain_loop, settings, ranks=1, timeout=600)[0]


def plain_loop(settings: Settings) -> RunResult:
    """A worker for a single rank."""
    with force_equal_devices():
        device = program.join()
    settings = replace(settings, micro_batch=settings.batch, checkpointing="none")
    sharded, _ = program.build(settings, device)
    model, text = Decoder(settings).to(device), program.memory_map(settings.text)
    model.load_state_dict(
        {name: parameter.full_tensor() for name, parameter in sharded.named_parameters()}
    )
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    losses, norms = [], []
    for step in range(settings.steps):
        tokens = program.tokens_of(text, settings, step, 0).to(device).long()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), settings.clip).item())
        optimizer.param_groups[0]["lr"] = program.rate(step, settings)
        optimizer.step()
        losses.append(loss.item())
    weights = {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}
    cleanup()
    return RunResult(0, losses, norms, weights)


def resume_run(ranks: int, settings: Settings, step: int, folder: Path) -> RunResult:
    """Go on, in another `folder`, from the checkpoint that a run with `settings` made at `step`."""
    name = f"step_{step:07}"
    shutil.copytree(settings.checkpoints / name, folder / name)
    return on_ranks(ranks, replace(settings, checkpoints=folder))


def differences(runs: dict[str, RunResult], expected: RunResult) -> pd.DataFrame:
    """The largest differences between each of these runs and one process."""
    rows = {}
    for name, run in runs.items():
        rows[name] = {
            what: max(map(abs, map(float.__sub__, ours, theirs[run.first_step :])))
            for what, ours, theirs in (
                ("loss", run.losses, expected.losses),
                ("gradient's norm", run.norms, expected.norms),
            )
        } | {"final weights": furthest(run.weights, expected.weights)}
    return pd.DataFrame(rows).T.rename_axis("largest difference from one process", axis=1)


@figures.house_style
def curves(runs: dict[str, RunResult]) -> figures.Picture:
    """The loss of each run against the step."""
    lines = {
        name: pd.Series(run.losses, range(run.first_step + 1, run.first_step + len(run.losses) + 1))
        for name, run in runs.items()
    }
    table = pd.DataFrame(lines).rename_axis("step")
    return figures.lines(table, "loss per byte", "The loss of one training on these ranks")


# Switch by switch

# Sharded by block alone, as in chapter 06; then one change after the other.
# Small, because bfloat16 is slow on many CPUs: 39 times as slow as float32 on one with AVX2.
SMALL = Settings(
    TEXT, vocabulary=512, layers=4, width=32, heads=2, length=32, batch=8, micro_batch=1,
    checkpointing="none",
)  # fmt: skip
BY_BLOCK = "by block alone"
SWITCHES: dict[str, dict[str, Any]] = {
    BY_BLOCK: {},
    "embedding and output as units": {},
    "and bf16": {"bf16": True},
    "and selective checkpointing": {"bf16": True, "checkpointing": "selective"},
    "or full checkpointing": {"bf16": True, "checkpointing": "full"},
    "selective, gradients kept": {
        "bf16": True, "checkpointing": "selective", "keep_gradients": True,
    },
}  # fmt: skip


class SwitchMeasurement(NamedTuple):
    """What one rank holds in its second step, and its calls: (op, dtype, bytes handed in, got)."""

    held: MemoryBreakdown
    calls: list[tuple[str, str, int, int]]


def switches(ranks: int = RANKS, settings: Settings = SMALL) -> dict[str, SwitchMeasurement]:
    """Rank 0 in a step with each of SWITCHES, all in one launch."""
    return launch(measure_steps, settings, ranks=ranks, timeout=600)[0]


def measure_steps(settings: Settings) -> dict[str, SwitchMeasurement]:
    """A worker: two steps with each switch, the second of them measured on rank 0."""
    device, measurements = program.join(), {}
    text = program.memory_map(settings.text)
    for name, changes in SWITCHES.items():
        ours = replace(settings, **changes)
        with patch.object(program, "shard", by_block if name == BY_BLOCK else program.shard):
            model, optimizer = program.build(ours, device)
        program.training_step(model, optimizer, text, ours, 0)  # AdamW makes its state
        if dist.get_rank() > 0:
            program.training_step(model, optimizer, text, ours, 1)
            continue
        rows: list[dict] = []
        with Recorder(rows), MemoryLedger(model, optimizer) as ledger:
            program.training_step(model, optimizer, text, ours, 1)
        calls = [
            (OPS.get(row["op"], row["op"]), row["dtype"], row["bytes"], row["received"])
            for row in rows
        ]
        measurements[name] = SwitchMeasurement(ledger.held, calls)
    cleanup()
    return measurements


def by_block(model: Decoder, settings: Settings, device: torch.device) -> None:
    """Chapter 06's way, in place of the program's `shard`."""
    shard_by_block(model, device)


def memory_parts(measurements: dict[str, SwitchMeasurement], parts: Sequence[str]) -> pd.DataFrame:
    """These parts of what rank 0 holds, in kB: a row for each switch."""
    rows = {
        name: {part: getattr(measurement.held, part) / KB for part in parts}
        for name, measurement in measurements.items()
    }
    return pd.DataFrame(rows).T


def memory_table(measurements: dict[str, SwitchMeasurement]) -> pd.DataFrame:
    """What rank 0 holds, in kB: a row for each switch."""
    table = memory_parts(measurements, ("model_states", "unsharded", "activations", "peak"))
    names = {"model_states": "parameters, gradients, state"}
    return table.rename(columns=names).round().astype(int)


@figures.house_style
def bars(measurements: dict[str, SwitchMeasurement]) -> figures.Picture:
    """What rank 0 holds in a step, a bar for each switch, stacked by part."""
    table = memory_parts(
        measurements, ("parameters", "gradients", "optimizer", "unsharded", "activations")
    )
    table = table.rename(columns={"optimizer": "optimizer state"})
    return figures.bars(table, "kB on rank 0", "What rank 0 holds in a step", by="part")


def calls_table(measurements: dict[str, SwitchMeasurement], ranks: int = RANKS) -> pd.DataFrame:
    """Rank 0's all-gathers and reduce-scatters of a step, and the kB that a ring sends for them."""
    rows = {}
    for name, measurement in measurements.items():
        counts = Counter(op for op, *_ in measurement.calls)
        types = {op: kind.removeprefix("torch.") for op, kind, *_ in measurement.calls}
        ring_bytes = {
            op: sum(
                max(bytes_in, bytes_out)
                for kind, _, bytes_in, bytes_out in measurement.calls
                if kind == op
            )
            for op in ("all_gather", "reduce_scatter")
        }
        rows[name] = {f"{op}s": f"{counts[op]} {types[op]}" for op in ring_bytes} | {
            "kB sent in a ring": round(sum(ring_bytes.values()) * (ranks - 1) / ranks / KB)
        }
    return pd.DataFrame(rows).T


# How fast is fast


def count_flops(settings: Settings) -> float:
    """What PyTorch counts for forward and backward of a sequence, for each token.

    On `meta`, where nothing is computed; attention is no single operation there, so a selective
    checkpoint computes it again.
    """
    with torch.device("meta"):
        model = Decoder(settings)
        tokens = torch.zeros(1, settings.length, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(tokens).float().sum().backward()
    return counter.get_total_flops() / settings.length


# MosaicML's LLM Foundry, scripts/train/benchmarking, H100 with FSDP and bf16, 2,048 tokens a
# sequence: layers, width, GPUs, tokens a second on each GPU, MFU in percent.
FOUNDRY_RUNS = {
    "1B": (24, 2048, 8, 45455, 41.8),
    "7B": (32, 4096, 8, 10643, 46.4),
    "70B": (80, 8192, 64, 1039, 42.6),
}


def foundry_settings(name: str, checkpointing: str = "none") -> Settings:
    """A model of FOUNDRY_RUNS; this program's has as many weights in matrix products."""
    layers, width, *_ = FOUNDRY_RUNS[name]
    return Settings(
        TEXT, 50368, layers, width, width // 128, length=2048, checkpointing=checkpointing
    )


def published_mfu() -> pd.DataFrame:
    """Published runs on H100s, and the MFU that the program's own function finds for them."""
    rows = {}
    for name, (_, _, gpus, rate, percent) in FOUNDRY_RUNS.items():
        settings = foundry_settings(name)
        with torch.device("meta"):
            operations = program.flops_per_token(Decoder(settings), settings)
        rows[name] = {
            "H100s": gpus,
            "tokens/s on each": rate,
            "GFLOP a token": round(operations / 1e9, 1),
            "MFU published, %": percent,
            "by the formula, %": round(100 * operations * rate / H100, 1),
        }
    return pd.DataFrame.from_dict(rows, orient="index")
