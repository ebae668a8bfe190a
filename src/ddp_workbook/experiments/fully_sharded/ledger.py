"""Every strategy in the ledger: what a rank holds and sends in one step, beside the formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ddp_workbook.chapters.digits import HEADS, SIDE, DigitsTransformer
from ddp_workbook.experiments.fully_sharded.strategies import (
    DTYPES,
    ROWS,
    STRATEGIES,
    WIDTH,
    StepMeasurement,
    Strategy,
    in_all_dtypes,
    measure_steps,
    units_of,
)
from ddp_workbook.experiments.gpu_tables import FOLDER, recorded_gpu
from ddp_workbook.page.display import TextTable, text_table
from manyranks import figures
from manyranks.figures.palette import INK, part_look, tint
from manyranks.launcher.launch import launch
from manyranks.planning import formulas
from manyranks.planning.activations import Saving, block_bytes
from manyranks.planning.decoder import GPT, DecoderShape
from manyranks.planning.messages import Message
from manyranks.planning.shards import Units
from manyranks.planning.speed import in_ring

DEPTH = 8
EXACT_PARTS = (
    "parameters",
    "gradients",
    "optimizer",
    "unsharded",
    "buckets",
)  # exactly, by formula
PARTS = (*EXACT_PARTS, "activations")
KB, MB = 1000, 1_000_000
PEAK = "peak"  # of all parts together: a mark, not a part
BAR, BAR_OFFSET = 0.36, 0.2  # of the picture


def strategies(
    ranks: int = 4,
    width: int = WIDTH,
    depth: int = DEPTH,
    among: Sequence[Strategy] = tuple(STRATEGIES.values()),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One step in each strategy: what it holds, what it sends, measured and by formula.

    All of them in one launch. The first table has a row for each strategy, rank and part of a
    ledger, in bytes: predicted, measured; for the "peak" of all parts together there is no formula.
    The second has rank 0's calls: strategy, op, group, calls, bytes (handed in), in_ring (bytes
    that a ring sends from each rank), predicted_calls, predicted_bytes.
    """
    selection = [s for s in among if s.required_ranks in (None, ranks)]
    units = units_of(DigitsTransformer(width, depth))
    of_ranks = launch(measure_steps, selection, width, depth, ranks=ranks, timeout=180)
    memory = [
        (s.name, rank, part, size, getattr(steps[s.name].held, part))
        for s in selection
        for rank, steps in enumerate(of_ranks)
        for part, size in predicted_parts(s, units, ranks, rank).items()
    ]
    columns = ["strategy", "rank", "part", "predicted", "measured"]
    return pd.DataFrame(memory, columns=columns), calls_of(selection, of_ranks[0], units, ranks)


def calls_of(
    selection: Sequence[Strategy], steps: dict[str, StepMeasurement], units: Units, ranks: int
) -> pd.DataFrame:
    """The second table of `strategies`, from what rank 0 has measured."""
    return pd.DataFrame(
        {"strategy": s.name} | row
        for s in selection
        for row in compare_calls(steps[s.name].wire, s.messages(units, ranks), ranks)
    )


def memory_with_policies(ranks: int = 4, **policies: Any) -> pd.DataFrame:
    """The ledger of `fully_shard` by block with these policies, measured on rank 0, in kB.

    `policies` are arguments of `fully_shard`: reshard_after_forward, mp_policy, offload_policy.
    """
    yours = Strategy("with your policies", policies=policies)
    step = launch(measure_steps, [yours], WIDTH, DEPTH, ranks=ranks, timeout=180)[0][yours.name]
    parts = {part: getattr(step.held, part) / KB for part in (*PARTS, "peak")}
    return pd.DataFrame(parts, index=[yours.name]).round(1)


def max_relative_error(memory: pd.DataFrame) -> float:
    """The largest difference of a prediction from its measurement, as a share of the latter.

    Over the parts that a formula can know, on all ranks.
    """
    rows = memory[memory["part"].isin(EXACT_PARTS)]
    apart = (rows["predicted"] - rows["measured"]).abs()
    return float((apart / rows["measured"].clip(lower=1)).max())


def ledger_table(memory: pd.DataFrame, rank: int = 0) -> pd.DataFrame:
    """What was measured on a rank, in kB: a row a strategy, a column a part, and the peak."""
    mine = memory[memory["rank"] == rank]
    table = mine.pivot(index="strategy", columns="part", values="measured") / KB
    table = table.loc[mine["strategy"].unique(), [*PARTS, "peak"]].round(1)
    return table.rename_axis(columns=None)


@figures.house_style
def bars(memory: pd.DataFrame, rank: int = 0) -> figures.Picture:
    """For each strategy a pale bar by formula and below it one as measured, stacked by part.

    The peak of all parts together is a mark on the lower bar: parts do not all peak at the same
    moment.
    """
    from matplotlib.lines import Line2D

    mine = memory[memory["rank"] == rank].replace({"part": {"optimizer": "optimizer state"}})
    names = list(mine["strategy"].unique())
    parts = [part for part in mine["part"].unique() if part != PEAK]
    looks = {part: part_look(part) for part in parts}
    pale = [look | {"facecolor": tint(look["facecolor"], 0.35)} for look in looks.values()]
    figure = figures.Figure((figures.WIDTH, 1.2 + 0.5 * len(names)), layout="constrained")
    axes = figure.subplots()
    words = []
    for row, name in enumerate(names):
        sizes = mine[mine["strategy"] == name].set_index("part")[["predicted", "measured"]] / KB
        below = row + BAR_OFFSET
        figures.stack(axes, row - BAR_OFFSET, sizes.loc[parts, "predicted"], pale, thick=BAR)
        figures.stack(axes, below, sizes.loc[parts, "measured"], [*looks.values()], thick=BAR)
        size = sizes["measured"]
        for colour, width in (("white", 7), (INK, 3)):  # else ink on dark bars
            ends = below - BAR / 2, below + BAR / 2
            axes.vlines(size[PEAK], *ends, color=colour, linewidth=width)
        kept = size[["parameters", "gradients", "optimizer state"]].sum()
        words.append(
            f"{name}: keeps {kept:,.0f} kB, {size['unsharded']:,.0f} kB unsharded for a moment, "
            f"peak {size[PEAK]:,.0f} kB"
        )
    figures.label_rows(axes, names)
    axes.set_xlim(0, None)
    axes.set_xlabel(f"kB on rank {rank}: upper bar by formula, lower bar measured")
    axes.grid(axis="x")
    mark = Line2D([], [], color=INK, marker="|", markersize=12, markeredgewidth=3, linestyle="")
    mark.set_label("peak of all together")
    keys = [figures.Patch(label=part, **look) for part, look in looks.items()]
    figure.legend(handles=[*keys, mark], loc="outside upper left", ncols=4, handlelength=1.6)
    return figures.Picture(figure, f"Bytes on rank {rank} in a step. {'. '.join(words)}.")


def wire_table(wire: pd.DataFrame) -> pd.DataFrame:
    """A row a strategy: calls by operation, and what a ring sends from each rank for them."""
    calls = wire.pivot_table("calls", "strategy", "op", aggfunc="sum", fill_value=0)
    ops = ["all_reduce", "all_gather", "reduce_scatter", "broadcast"]
    calls = calls.reindex(columns=ops, fill_value=0).rename_axis(columns=None)
    calls["kB sent in a ring"] = (wire.groupby("strategy")["in_ring"].sum() / KB).round(1)
    return calls.loc[wire["strategy"].unique()]


def traffic_by_dtype(ranks: int = 4) -> pd.DataFrame:
    """Bytes that a ring sends from a rank, measured, as multiples of DDP's in float32.

    A row for each strategy, a column for each of DTYPES. The formulas must say the same.
    """
    selection, units = in_all_dtypes(), units_of(DigitsTransformer(WIDTH, DEPTH))
    steps = launch(
        measure_steps, selection, WIDTH, DEPTH, measure_memory=False, ranks=ranks, timeout=180
    )
    wire = calls_of(selection, steps[0], units, ranks)
    assert (wire["bytes"] == wire["predicted_bytes"]).all()
    ring_bytes = wire.groupby("strategy", sort=False)["in_ring"].sum()
    ring_bytes.index = pd.MultiIndex.from_tuples(name.rsplit(", ", 1) for name in ring_bytes.index)
    table = (
        (ring_bytes / ring_bytes["DDP", "fp32"]).round(2).unstack().reindex(columns=list(DTYPES))
    )
    order = dict.fromkeys(ring_bytes.index.get_level_values(0))
    return table.loc[list(order)].rename_axis("strategy")


def by_depth(depths: Sequence[int], ranks: int = 4, width: int = WIDTH) -> pd.DataFrame:
    """For models of so many blocks, by formula and in kB: what stays, and what is unsharded."""
    rows = {}
    for depth in depths:
        units = units_of(DigitsTransformer(width, depth))
        whole, sharded = formulas.ddp(units), STRATEGIES["fully_shard"].predict_memory(units, ranks)
        rows[depth] = {
            "DDP keeps, kB": (whole.model_states + whole.buckets) / KB,
            "fully_shard keeps, kB": sharded.model_states / KB,
            "unsharded, kB": sharded.unsharded / KB,
        }
    return pd.DataFrame(rows).T.rename_axis("blocks").round().astype(int)


def read_ledger(folder: Path = FOLDER) -> pd.DataFrame:
    """What `make gpu` recorded of the strategies, in MB, beside the formulas.

    A row for each strategy and size: machine, strategy, ranks, width, depth, batch; what is kept by
    formula, and as counted on the GPU's rank; all parts together by formula, and the allocator's
    peak in a whole step. Strategies that only differ in what no formula here knows are left out.
    """
    measurements = recorded_gpu("memory", folder)
    about = ["machine", "strategy", "ranks", "width", "depth", "batch"]
    moments = measurements.pivot_table(
        ["counted_bytes", "peak_bytes"], about, "after", sort=False, dropna=False
    ).dropna(how="all")  # else there is a row for every combination that nobody measured
    rows = []
    for key, moment_bytes in moments.iterrows():
        at = dict(zip(about, key, strict=True))
        strategy, ranks = STRATEGIES.get(at["strategy"]), int(at["ranks"])
        if strategy is None or strategy.offload:
            continue
        units = units_of(DigitsTransformer(int(at["width"]), int(at["depth"])))
        activations = activation_bytes(
            strategy, int(at["width"]), int(at["depth"]), int(at["batch"])
        )
        ledger = replace(strategy.predict_memory(units, ranks), activations=activations)
        rows.append(
            at
            | {
                "kept, by formula": ledger.model_states / MB,
                "kept, counted": moment_bytes["counted_bytes", "optimizer step"] / MB,
                "all parts, by formula": ledger.total / MB,
                "allocator's peak": moment_bytes["peak_bytes", "next step"] / MB,
            }
        )
    return pd.DataFrame(rows).round(1)


def recorded_table() -> TextTable:
    """The same as a page shows it, below the machine."""
    ledger = read_ledger()
    return text_table(ledger.drop(columns="machine"), ledger["machine"].iloc[0])


def predicted_parts(
    strategy: Strategy, units: Units, ranks: int, rank: int
) -> dict[str, int | None]:
    """Bytes by part; None for the peak."""
    ledger = strategy.predict_memory(units, ranks, rank)
    parts = {part: getattr(ledger, part) for part in EXACT_PARTS}
    width, depth = units[0][0][-1], len(units) - 1
    return parts | {"activations": activation_bytes(strategy, width, depth), "peak": None}


def activation_bytes(
    strategy: Strategy,
    width: int,
    depth: int,
    rows: int = ROWS,
    dtype: torch.dtype = torch.float32,
) -> int:
    """Bytes of activations that backward finds, but for what the output layer saves.

    With checkpointing: each block's input, and all of the one block that is computed again. `dtype`
    is the model's; a strategy that computes in another one says so itself.
    """
    if strategy.precision != "fp32" or "mp_policy" in strategy.policies:
        dtype = strategy.policy.param_dtype or dtype
    shape = DecoderShape("", depth, width, HEADS, HEADS, 4 * width, 0, **GPT)
    tokens = rows * SIDE
    between = tokens * width * dtype.itemsize  # the input of a block, and the last one's output
    block = block_bytes(shape, tokens, Saving(dtype))
    if strategy.checkpointing:
        return (depth - 1) * between + block
    return depth * block + between


def compare_calls(
    wire: Sequence[Message], messages: Sequence[Message], ranks: int
) -> list[dict[str, Any]]:
    """A row for each op and group: calls and bytes, measured and by formula."""

    def kind(call: Message) -> tuple[str, str]:
        return call.op, group_of(call, ranks)

    rows = []
    for op, group in dict.fromkeys(map(kind, [*wire, *messages])):
        same = [call for call in wire if kind(call) == (op, group)]
        sizes = [call.bytes for call in messages if kind(call) == (op, group)]
        rows.append(
            {
                "op": op,
                "group": group,
                "calls": len(same),
                "bytes": sum(call.bytes for call in same),
                "in_ring": round(sum(map(in_ring, same))),
                "predicted_calls": len(sizes),
                "predicted_bytes": sum(sizes),
            }
        )
    return rows


def group_of(message: Message, ranks: int) -> str:
    """The group of rank 0 in the words of the recorder."""
    if message.ranks == ranks:
        return "default"
    return "ranks " + ",".join(str(i * message.stride) for i in range(message.ranks))
