"""Plans that pages show: bars, controls, strategies compared, and plans beside published runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import ddp_workbook
from ddp_workbook.experiments.fully_sharded.strategies import FAKE, group
from manyranks import figures
from manyranks.figures.palette import INK, part_look
from manyranks.planning import formulas
from manyranks.planning.decoder import GPT, DecoderShape
from manyranks.planning.plan import Plan, plan
from manyranks.planning.settings import PRECISIONS, STRATEGIES
from manyranks.planning.speed import between_nodes, in_ring

MODELS = Path(__file__).parents[4] / "data" / "models"
GIB, GB = 2**30, 10**9
SIZES = ("0.1B", "0.3B", "1B", "3B", "8B", "13B", "30B", "70B", "175B", "405B")
GPUS = tuple(2**power for power in range(13))  # 1 to 4,096
MEMORIES = ("24GB", "40GB", "80GB", "141GB", "192GB")
LINKS = ("InfiniBand NDR", "InfiniBand HDR", "Ethernet 100G", "Ethernet 25G", "Ethernet 10G")
BATCHES = (1, 2, 4, 8, 16)


def memory_picture(plans: Mapping[str, Plan]) -> figures.Picture:
    """Bars of bytes on each GPU, a row for each plan, all with the same memory."""
    return plan_plot(plans, memory=True)


def seconds_picture(plans: Mapping[str, Plan]) -> figures.Picture:
    """Bars of compute and network, a row for each plan."""
    return plan_plot(plans, seconds=True)


def unsharded_parts(result: Plan) -> pd.DataFrame:
    """What is full-size at the plan's worst moment, in GB, the largest first."""
    rows = sorted(result.whole.items(), key=lambda row: -row[1])
    return pd.DataFrame([(what, size / 1e9) for what, size in rows], columns=["what", "GB"])


@figures.house_style
def plan_plot(
    plans: Mapping[str, Plan], *, memory: bool = False, seconds: bool = False
) -> figures.Picture:
    """A row for each plan: bytes by part with a line at the memory, or seconds of a step, or both.

    All plans are for GPUs of the same memory.
    """

    rows = [len(plans) * share for share, show in ((1, memory), (1.6, seconds)) if show]
    height = sum(0.85 + 0.42 * row for row in rows) + 0.3
    figure = figures.Figure((figures.WIDTH, height), layout="constrained")
    ratios = [0.9 + 0.42 * row for row in rows]
    panels = figure.subplots(len(rows), 1, squeeze=False, height_ratios=ratios)[:, 0]
    words = [*(_memory(panels[0], plans) if memory else [])]
    words += _seconds(panels[-1], plans) if seconds else []
    for axes in panels:
        figures.label_rows(axes, list(plans))
        axes.grid(axis="x")
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "handlelength": 1.6}
        axes.legend(ncols=len(axes.get_legend_handles_labels()[0]), fontsize=10, **place)
    return figures.Picture(figure, " ".join(words))


def _memory(axes: Any, plans: Mapping[str, Plan]) -> list[str]:
    """Draw a bar of GB for each plan, and a line at the memory; the same in words."""

    memory = next(iter(plans.values())).settings.memory / GB
    names = {"optimizer": "optimizer state"}
    table = pd.DataFrame({name: pd.Series(result.on_gpu) / GB for name, result in plans.items()}).T
    parts = [part for part in formulas.PARTS if part in table]
    table = table[parts].rename(columns=names)
    looks = [part_look(part) for part in table]
    for row, sizes in enumerate(table.to_numpy()):
        figures.stack(axes, row, pd.Series(sizes), looks)
    for part, look in zip(table, looks, strict=True):
        axes.barh(0, 0, label=part, **look)
    axes.axvline(memory, color=INK, linestyle="--", linewidth=1.6)
    axes.set_xlim(0, 1.05 * max(memory, table.sum(axis=1).max()))
    axes.set_xlabel(f"GB on each GPU; dashed: its memory, {memory:.0f} GB")
    words = []
    for name, result in plans.items():
        sizes = table.loc[name].dropna()
        part_texts = ", ".join(f"{part} {size:.1f} GB" for part, size in sizes.items())
        fits = "fits into" if result.fits else "does not fit into"
        words.append(f"{name}: {part_texts}; {sizes.sum():.1f} GB in all, {fits} {memory:.0f} GB.")
    return words


def _seconds(axes: Any, plans: Mapping[str, Plan]) -> list[str]:
    """Draw two bars for each plan, compute and network; the same in words."""

    times = {
        name: (result.compute_seconds, result.network_seconds) for name, result in plans.items()
    }
    for row, pair in enumerate(times.values()):
        for which, (name, time) in enumerate(zip(("compute", "network"), pair, strict=True)):
            label = name if row == 0 else None
            axes.barh(row + 0.36 * which - 0.18, time, height=0.32, label=label, **part_look(name))
    axes.set_xlabel("seconds: a step takes at least as long as the longer bar")
    return [
        f"{name}: {c:.2f} s of compute, {n:.2f} s of network." for name, (c, n) in times.items()
    ]


def sharded_by_torch(result: Plan) -> int:
    """Bytes of parameters on rank 0 if `fully_shard` itself cuts every unit of the plan's model.

    The ranks are fake and the parameters on `meta`, so that any number of both fits into a process.
    """
    settings, nbytes = result.settings, 0
    with group(FAKE, settings.gpus):
        mesh = init_device_mesh("cpu", (settings.gpus,))
        for unit in settings.units(result.shape):
            module = nn.Module()
            for number, shape in enumerate(unit):
                parameter = nn.Parameter(torch.empty(tuple(shape), device="meta"))
                module.register_parameter(f"p{number}", parameter)
            fully_shard(module, mesh=mesh)
            nbytes += sum(p.to_local().untyped_storage().nbytes() for p in module.parameters())
    return nbytes


# Strategies compared

WAYS: dict[str, dict[str, Any]] = {
    "DDP": {"strategy": "DDP"},
    "ZeroRedundancyOptimizer": {"strategy": "ZeRO-1"},
    "blocks stay gathered": {"reshard_after_forward": False},
    "fully_shard": {},
    "HSDP, a node a copy": {"strategy": "HSDP"},
    "fully_shard, checkpointing": {"checkpoint": True},
    "fully_shard, CPU offload": {"offload": True},
}


def strategies_table(parameters: Any = "8B", gpus: int = 16, **options: Any) -> pd.DataFrame:
    """For each strategy, in GB on each GPU: what it keeps, and what a step sends in three dtypes.

    `sent` is what a ring sends from each GPU, `between nodes` the part of it that leaves the node.
    `unsharded` is full-size for a moment, with buckets and autocast's copies, in bf16. `host` are
    GB of a node's memory, `compute` how many times the operations of a plain step.
    """
    how: dict[str, Any] = {"memory": "1TB", "checkpoint": False} | options
    order = PRECISIONS[::-1]
    rows: dict[str, dict[tuple[str, str], float]] = {}
    for name, way in WAYS.items():
        plans = {p: plan(parameters, gpus, **how | way, precision=p) for p in order}
        ledger, calls = plans["bf16"].ledger, plans["bf16"].messages
        plain = plan(parameters, gpus, **how)
        row: dict[tuple[str, str], float] = {
            ("kept", ""): ledger.model_states / GB,
            ("unsharded", ""): (max_unsharded_bytes(plans["bf16"]) + ledger.buckets + ledger.copies)
            / GB,
        }
        row |= {("sent", p): step_traffic(result)[0] / GB for p, result in plans.items()}
        row |= {("between nodes", p): step_traffic(result)[1] / GB for p, result in plans.items()}
        row |= {
            ("messages", ""): sum(call.times for call in calls),
            ("host", ""): plans["bf16"].host_memory / GB,
            ("compute", ""): plans["bf16"].compute_seconds / plain.compute_seconds,
        }
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("strategy")


def max_unsharded_bytes(result: Plan) -> int:
    """Full-size bytes of a plan when they are most, which may be earlier than the worst moment."""
    how = result.settings
    if not how.sharded:
        return 0
    parts = formulas.unsharded(how.units(result.shape), how.shards, how.policy(result.shape))
    return sum(parts.values())


def step_traffic(result: Plan) -> tuple[float, float]:
    """Bytes that a GPU sends in a ring for a step, and those of them that leave its node."""
    cluster = result.settings.cluster
    rings = sum(call.times * in_ring(call) for call in result.messages)
    return rings, sum(call.times * between_nodes(call, cluster) for call in result.messages)


QUESTIONS: dict[str, dict[str, Any]] = {
    "1. Does DDP fit?": {"strategy": "DDP"},
    "2. With blocks that stay gathered?": {"reshard_after_forward": False},
    "3. With blocks that are freed?": {},
    "4. With selective checkpointing?": {"checkpoint": "selective"},
    "5. With full checkpointing?": {"checkpoint": True},
    "6. With a block on 8 GPUs?": {"checkpoint": True, "split_root": True, "tensor": 8},
}


def six_questions(parameters: Any, gpus: int, **options: Any) -> pd.DataFrame:
    """The decision path: ways to train, the one that costs least first; the first that fits is it.

    Columns: fits, GB on each GPU, seconds of compute and of network, tokens/s on each GPU, MFU.
    """
    rows = {}
    for question, way in QUESTIONS.items():
        result = plan(parameters, gpus, **({"checkpoint": False} | options | way))
        rows[question] = {
            "fits": "yes" if result.fits else "no",
            "GB": round(result.ledger.device / GB, 1),
            "compute, s": round(result.compute_seconds, 2),
            "network, s": round(result.network_seconds + result.tensor_seconds, 2),
            "tokens/s": round(result.tokens_per_second),
            "MFU": f"{result.mfu:.0%}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(f"{gpus} GPUs")


def configs(gpus: int = 64) -> pd.DataFrame:
    """The configs of data/models: their parameters in billions, and GB on each of so many H100s."""
    rows = {}
    for path in sorted(MODELS.glob("*.json")):
        result = plan(path, gpus)
        rows[path.stem] = {
            "parameters": result.shape.parameters / GB,
            "active": result.shape.active / GB,
            "GB": result.ledger.device / GB,
            "fits": "yes" if result.fits else "no",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("config").round(1)


# Published runs

TITAN = "torchtitan, benchmarks/llama3_h100_202412"
TITAN_A100 = "torchtitan, docs/performance.md, 2024"
FOUNDRY = "LLM Foundry, scripts/train/benchmarking, H100"
HERD = "The Llama 3 herd of models, 2024, table 4"
ZERO = "Rajbhandari et al., ZeRO, 2020, figure 1"
EAGER = "eager PyTorch reached a third of the peak"
FEWER = "torchtitan kept every second product"
BRIDGE = "Megatron Bridge, docs/performance-summary.md, NeMo container 25.11"
DEEPSEEK = "DeepSeek-V3 technical report, 2024, sections 3.1, 3.2 and 4.2"
GUESSED_STAGES = "the paper does not say how many stages a rank had; 8 are assumed"
FLOAT8 = "it computed in Float8, of which a plan knows nothing"
UNEXPLAINED = "not explained"
FLOAT8_AND_ONE = "it computed in Float8; micro-batches of one sequence are assumed"


def mpt(name: str, layers: int, width: int, heads: int) -> DecoderShape:
    """A model of LLM Foundry's benchmark, trained on 2,048 tokens."""
    sizes = layers, width, heads, heads, 4 * width, 50368
    return DecoderShape(name, *sizes, positions=2048, **GPT)


def published_runs() -> pd.DataFrame:
    """Published runs beside their plans: what, published, plan, off, why, source.

    "off" is plan / published - 1.
    """
    on_a100: dict[str, Any] = {"gpus": 64, "gpu": "A100", "link": "InfiniBand HDR"}
    small = {
        gpus: plan("8B", gpus, "96GB", batch=2, sequence=8192, checkpoint="selective")
        for gpus in (8, 128)
    }
    saving = (small[8].ledger.model_states - small[128].ledger.model_states) / GIB
    kept = plan("7.5B", 64).ledger.model_states / GB
    seven, thirty = mpt("MPT 7B", 32, 4096, 32), mpt("MPT 30B", 48, 7168, 56)
    runs = {  # a micro-batch, and how many of them make a step
        "MPT 7B, 8 H100": (plan(seven, 8, batch=6, sequence=2048, checkpoint=False), 10643),
        "MPT 30B, 8 H100": (plan(thirty, 8, batch=3, sequence=2048, global_batch=504), 2002),
        "MPT 30B, 32 H100": (plan(thirty, 32, batch=14, sequence=2048, global_batch=1344), 2308),
        "MPT 70B, 64 H100": (
            plan(mpt("", 80, 8192, 64), 64, batch=8, sequence=2048, global_batch=2048),
            1039,
        ),
    }
    rows = [
        *[
            (f"{name}: tokens/s on each GPU", number, result.tokens_per_second, "", FOUNDRY)
            for name, (result, number) in runs.items()
        ],
        *[
            (f"Llama 3 8B, {gpus} H100: {what}", number, by_plan, why, TITAN)
            for gpus, speed, size in ((8, 5762, 82.4), (128, 5605, 67.0))
            for what, number, by_plan, why in (
                ("tokens/s on each GPU", speed, small[gpus].tokens_per_second, EAGER),
                ("GiB", size, small[gpus].ledger.device / GIB, FEWER),
            )
        ],
        ("the same: GiB that 128 GPUs save", 15.4, saving, "", TITAN),
        (
            "Llama 3 70B, 64 A100: tokens/s on each GPU",
            331,
            plan("Llama 3 70B", sequence=8192, **on_a100).tokens_per_second,
            "it reached more than half of the peak",
            TITAN_A100,
        ),
        ("Llama 3 405B, 8,192 H100: MFU in %", 43, 100 * herd(8192).mfu, GUESSED_STAGES, HERD),
        ("7.5 billion parameters: GB kept on each of 64", 1.9, kept, "", ZERO),
    ]
    return beside_plans(rows)


def herd(gpus: int, *, sequence: int = 8192, context: int = 1, stages_per_rank: int = 8) -> Plan:
    """Llama 3 405B as it was trained: 16 million tokens a step, nothing computed twice."""
    return plan(
        "405B",
        gpus,
        tensor=8,
        pipeline=16,
        context=context,
        schedule="interleaved",
        stages_per_rank=stages_per_rank,
        sequence=sequence,
        global_batch=2**24 // sequence,
        checkpoint=False,
    )


def published_splits() -> pd.DataFrame:
    """Published runs with pipeline, context and expert degrees, as in `published_runs`."""
    titan: dict[str, Any] = {"gpus": 512, "memory": "96GB", "tensor": 8, "pipeline": 8}
    titan |= {"sequence": 8192, "micro_batches": 32}
    once, twice = plan("405B", **titan), plan("405B", **titan, schedule="interleaved")
    four = plan("405B", **titan | {"context": 8, "sequence": 2**18, "micro_batches": 8})
    flat = plan("70B", 256, "96GB", tensor=8, batch=16, sequence=8192)
    nvidia = plan(
        "70B", 64, tensor=4, pipeline=8, schedule="interleaved", stages_per_rank=5, sequence=8192,
        global_batch=128, checkpoint="selective",
    )  # fmt: skip
    eight = {
        context: plan("8B", 8, "96GB", context=context, sequence=32768 * context)
        for context in (2, 8)
    }
    deepseek = plan(
        "DeepSeek-V3", 2048, pipeline=16, expert=64, schedule="zero-bubble", global_batch=15360,
        checkpoint="selective",
    )  # fmt: skip
    hidden = replace(
        deepseek,
        expert_seconds=0.0,
        bubble_seconds=deepseek.compute_seconds * deepseek.bubble / (1 - deepseek.bubble),
    )
    long = herd(16384, sequence=131072, context=16)
    wide = "Llama 3 405B, 512 H100 (tensor 8, pipeline 8)"
    cut = "Llama 3 8B, 8 H100, context"
    attention = "most of it is attention, and its GPUs computed at a third of their peak"
    rows = [
        ("Llama 3 405B, 8,192 H100: MFU in %", 43, 100 * herd(8192).mfu, GUESSED_STAGES, HERD),
        ("the same, 16,384 H100", 41, 100 * herd(16384).mfu, GUESSED_STAGES, HERD),
        ("the same, with context 16", 38, 100 * long.mfu, GUESSED_STAGES, HERD),
        (f"{wide}, 1F1B: tokens/s on each GPU", 100, once.tokens_per_second, FLOAT8_AND_ONE, TITAN),
        ("the same, interleaved", 128, twice.tokens_per_second, FLOAT8_AND_ONE, TITAN),
        (
            "Llama 3 405B, 8,192 H100: GB needed, of 80",
            80,
            herd(8192).ledger.device / GB,
            "it freed early what no later operation needs",
            HERD,
        ),
        (
            f"{wide}, 1F1B: GiB",
            82.5,
            once.ledger.device / GIB,
            f"{UNEXPLAINED}: the size of its micro-batches is not published",
            TITAN,
        ),
        ("the same, interleaved: GiB", 72.7, twice.ledger.device / GIB, UNEXPLAINED, TITAN),
        (
            f"{wide}, context 8, 1F1B: tokens/s on each GPU",
            16,
            four.tokens_per_second,
            attention,
            TITAN,
        ),
        (
            "Llama 3 70B, 256 H100 (tensor 8): tokens/s on each GPU",
            829,
            flat.tokens_per_second,
            FLOAT8,
            TITAN,
        ),
        ("the same: GiB", 71.9, flat.ledger.device / GIB, UNEXPLAINED, TITAN),
        (
            "Llama 3 70B, 64 H100 (tensor 4, pipeline 8): tokens/s on each GPU",
            1602,
            nvidia.tokens_per_second,
            f"{FLOAT8}; its activation checkpointing is not published",
            BRIDGE,
        ),
        (f"{cut} 2: tokens/s on each GPU", 2540, eight[2].tokens_per_second, FLOAT8, TITAN),
        (f"{cut} 2: GiB", 84.2, eight[2].ledger.device / GIB, "", TITAN),
        (f"{cut} 8: tokens/s on each GPU", 548, eight[8].tokens_per_second, attention, TITAN),
        (
            "DeepSeek-V3, 2,048 H800 (pipeline 16, expert 64): tokens/s on each GPU",
            10**12 / 180_000 / 3600,
            deepseek.tokens_per_second,
            "it hid its all-to-alls, sent in 8 bits, and to 4 nodes at most",
            DEEPSEEK,
        ),
        (
            "the same, with all of them hidden",
            10**12 / 180_000 / 3600,
            hidden.tokens_per_second,
            FLOAT8,
            DEEPSEEK,
        ),
        (
            "DeepSeek-V3: GB needed, of 80",
            80,
            deepseek.ledger.device / GB,
            "it kept activations in 8 bits, and computed norms and projections again",
            DEEPSEEK,
        ),
    ]
    return beside_plans(rows)


def beside_plans(rows: list[tuple[str, float, float, str, str]]) -> pd.DataFrame:
    """The table of published numbers and plans: what, published, plan, off, why, source."""
    table = pd.DataFrame(rows, columns=["what", "published", "plan", "why", "source"])
    table.insert(3, "off", (table["plan"] / table["published"] - 1).map("{:+.0%}".format))
    for column in ("published", "plan"):
        table[column] = table[column].map(lambda n: f"{n:,.0f}" if n > 100 else f"{n:.1f}")
    return table


# To play with


def play_plan() -> ddp_workbook.Play:
    """Controls over `plan`."""
    return ddp_workbook.play(
        plan,
        verdict_plot,
        ranks=None,
        stills=[
            {"gpus": 8},
            {"strategy": "DDP"},
            {"memory": "192GB"},
            {"link": "Ethernet 10G"},
            {"parameters": "405B"},
        ],
        parameters=ddp_workbook.slider("parameters", SIZES, "70B"),
        gpus=ddp_workbook.slider("GPUs", GPUS, 64),
        memory=ddp_workbook.slider("memory of a GPU", MEMORIES, "80GB"),
        batch=ddp_workbook.slider("sequences a GPU", BATCHES),
        strategy=ddp_workbook.choice("strategy", STRATEGIES, "fully_shard"),
        link=ddp_workbook.choice("network", LINKS),
    )


def verdict_plot(result: Plan, **_: object) -> figures.Picture:
    """A plan's bars, under its verdict."""
    verdict, bound = (
        words[0].upper() + words[1:] + "." for words in (result.verdict, result.bound)
    )
    words = f"{result.shape.name}. {verdict}\n{bound}"
    picture = plan_plot({result.shape.name: result}, memory=True, seconds=True)
    picture.figure.suptitle(words, x=0.01, ha="left", size=10, weight="bold")
    picture.alt = f"{words} {picture.alt}".replace("\n", " ")
    return picture
