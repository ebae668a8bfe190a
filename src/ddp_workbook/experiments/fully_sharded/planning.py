"""Plans that the page shows: bars, controls over `plan`, and plans beside published runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

import ddp_workbook
from ddp_workbook import figures
from ddp_workbook.planning import formulas
from ddp_workbook.planning.plan import STRATEGIES, Plan, plan

if TYPE_CHECKING:
    from ddp_workbook.notebook.play import Play

GIB, GB = 2**30, 10**9
SIZES = ("0.1B", "0.3B", "1B", "3B", "8B", "13B", "30B", "70B", "175B", "405B")
GPUS = tuple(2**power for power in range(13))  # 1 to 4,096
MEMORIES = ("24GB", "40GB", "80GB", "141GB", "192GB")
LINKS = ("InfiniBand NDR", "InfiniBand HDR", "Ethernet 100G", "Ethernet 25G", "Ethernet 10G")
BATCHES = (1, 2, 4, 8, 16)


def memory_picture(plans: Mapping[str, Plan]) -> figures.Picture:
    """Bars of bytes on each GPU, a row for each plan, all with the same memory."""
    return drawn(plans, memory=True)


def seconds_picture(plans: Mapping[str, Plan]) -> figures.Picture:
    """Bars of compute and network, a row for each plan."""
    return drawn(plans, seconds=True)


def whole_pieces(made: Plan) -> pd.DataFrame:
    """What is full-size at the plan's worst moment, in GB, the largest first."""
    rows = sorted(made.whole.items(), key=lambda row: -row[1])
    return pd.DataFrame([(what, size / 1e9) for what, size in rows], columns=["what", "GB"])


@figures.drawn
def drawn(
    plans: Mapping[str, Plan], *, memory: bool = False, seconds: bool = False
) -> figures.Picture:
    """A row for each plan: bytes by part with a line at the memory, or seconds of a step, or both.

    All plans are for GPUs of the same memory.
    """
    from matplotlib.figure import Figure

    rows = [len(plans) * share for share, wanted in ((1, memory), (1.6, seconds)) if wanted]
    height = sum(0.85 + 0.42 * row for row in rows) + 0.3
    figure = Figure((figures.WIDTH, height), layout="constrained")
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
    from ddp_workbook.figures.palette import part_look
    from ddp_workbook.figures.style import INK

    memory = next(iter(plans.values())).settings.memory / GB
    names = {"optimizer": "optimizer state"}
    table = pd.DataFrame({name: pd.Series(made.on_gpu) / GB for name, made in plans.items()}).T
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
    for name, made in plans.items():
        sizes = table.loc[name].dropna()
        each = ", ".join(f"{part} {size:.1f} GB" for part, size in sizes.items())
        fits = "fits into" if made.fits else "does not fit into"
        words.append(f"{name}: {each}; {sizes.sum():.1f} GB in all, {fits} {memory:.0f} GB.")
    return words


def _seconds(axes: Any, plans: Mapping[str, Plan]) -> list[str]:
    """Draw two bars for each plan, compute and network; the same in words."""
    from ddp_workbook.figures.palette import part_look

    times = {name: (made.compute_seconds, made.network_seconds) for name, made in plans.items()}
    for row, pair in enumerate(times.values()):
        for which, (name, time) in enumerate(zip(("compute", "network"), pair, strict=True)):
            label = name if row == 0 else None
            axes.barh(row + 0.36 * which - 0.18, time, height=0.32, label=label, **part_look(name))
    axes.set_xlabel("seconds: a step takes at least as long as the longer bar")
    return [
        f"{name}: {c:.2f} s of compute, {n:.2f} s of network." for name, (c, n) in times.items()
    ]


# Published runs

TORCHTITAN = "torchtitan, benchmarks/llama3_h100_202412, 2024, tables 1 and 3"
SPEED = "the same: tokens/s on each GPU"
TORCHTITAN_A100 = "torchtitan, docs/performance.md, 2024"
ZERO = "Rajbhandari et al., ZeRO, 2020, figure 1"


def published() -> pd.DataFrame:
    """Published runs beside their plans: what, published, plan, source."""
    small = {gpus: plan("8B", gpus, "96GB", batch=2, sequence=8192) for gpus in (8, 128)}
    on_a100: dict[str, Any] = {"gpus": 64, "gpu": "A100", "link": "InfiniBand HDR"}
    large = plan("Llama 3 70B", sequence=8192, **on_a100)
    plain = plan("Llama 2 13B", batch=2, checkpoint=False, **on_a100)
    kept = {ranks: plan("7.5B", ranks).ledger.kept / 1e9 for ranks in (1, 64)}
    saved = (small[8].ledger.kept - small[128].ledger.kept) / GIB
    rows = [
        (
            "Llama 3 70B on 64 A100 of 80 GB, checkpointed: does it run?",
            "yes",
            f"yes, with {large.times:.0%} of the memory",
            TORCHTITAN_A100,
        ),
        (
            SPEED,
            "331",
            f"{large.tokens_per_second:.0f}",
            TORCHTITAN_A100,
        ),
        (
            "Llama 2 13B on the same GPUs, batch 2, not checkpointed: does it run?",
            "yes",
            f"yes, with {plain.times:.0%} of the memory",
            TORCHTITAN_A100,
        ),
        (
            SPEED,
            "2,162",
            f"{plain.tokens_per_second:,.0f}",
            TORCHTITAN_A100,
        ),
        (
            "Llama 3 8B on 128 H100 in place of 8: memory that each saves",
            "15.4 GiB",
            f"{saved:.1f} GiB",
            TORCHTITAN,
        ),
        (
            "the same: how much of the tokens/s on each GPU remains",
            "97%",
            f"{small[128].tokens_per_second / small[8].tokens_per_second:.0%}",
            TORCHTITAN,
        ),
        (
            "7.5 billion parameters: kept on one GPU, and on each of 64",
            "120 GB and 1.9 GB",
            f"{kept[1]:.0f} GB and {kept[64]:.1f} GB",
            ZERO,
        ),
    ]
    return pd.DataFrame(rows, columns=["what", "published", "plan", "source"])


# To play with


def play_plan() -> Play:
    """Controls over `plan`."""
    return ddp_workbook.play(
        plan,
        planned,
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


def planned(made: Plan, **_: object) -> figures.Picture:
    """A plan's bars, under its verdict."""
    verdict, bound = (words[0].upper() + words[1:] + "." for words in (made.verdict, made.bound))
    words = f"{made.shape.name}. {verdict}\n{bound}"
    picture = drawn({made.shape.name: made}, memory=True, seconds=True)
    picture.figure.suptitle(words, x=0.01, ha="left", size=10, weight="bold")
    picture.alt = f"{words} {picture.alt}".replace("\n", " ")
    return picture
