"""What fully sharded training alone runs into, with a published model's shape: three numbers."""

from __future__ import annotations

from typing import NamedTuple

import ddp_workbook
from manyranks import figures
from manyranks.figures.palette import series_colour, tint
from manyranks.planning.plan import Plan, plan

SIZES = ("8B", "70B", "405B", "1T")
SEQUENCES = (4096, 8192, 32768, 131072)
GPUS = (8, 64, 512, 2048, 8192, 16384, 32768)
LINKS = ("InfiniBand NDR", "Ethernet 100G", "Ethernet 10G")
BATCH = 16e6  # tokens a step: that of Llama 3 405B, whose authors raised it to no more
GB = 1e9
LONGEST = 3.0  # of a bar, in limits
ROOM = 0.9  # of the memory: with more than that unsharded, no number of GPUs will do


class Wall(NamedTuple):
    """A number beside its limit, both in words, and what to do beyond the limit."""

    name: str
    share: float  # of the limit
    words: str
    remedy: str


def walls(parameters: str, gpus: int, sequence: int, link: str) -> list[Wall]:
    """Memory, batch and network of `fully_shard` with one sequence on each GPU."""
    result = plan(parameters, gpus, sequence=sequence, link=link)
    return [memory_wall(result), batch_wall(gpus * sequence), network_wall(result)]


def memory_wall(result: Plan) -> Wall:
    """What a GPU holds; if no sharding would help, the computation must be cut."""
    memory, needed = result.settings.memory, result.ledger.device
    unsharded = needed - result.ledger.model_states
    activations = result.ledger.activations
    words = (
        f"{needed / GB:.0f} of {memory / GB:.0f} GB, not sharded: {activations / GB:.0f} of "
        f"activations, {(unsharded - activations) / GB:.0f} of weights and gradients"
    )
    remedy = "more GPUs, each with a smaller shard"
    if unsharded > ROOM * memory:
        remedy = "cut each layer or the sequence: tensor or context parallel"
    return Wall("memory of a GPU", needed / memory, words, remedy)


def batch_wall(tokens: int) -> Wall:
    """One sequence on each GPU is a batch that grows with the GPUs."""
    words = f"{tokens / 1e6:.1f} of {BATCH / 1e6:.0f} M tokens a step"
    remedy = "several GPUs for one sequence: tensor or context parallel"
    return Wall("the batch", tokens / BATCH, words, remedy)


def network_wall(result: Plan) -> Wall:
    """All gathers and scatters beside the arithmetic that could hide them."""
    network, compute = result.network_seconds, result.compute_seconds
    words = f"{network:.1f} s of network beside {compute:.1f} s of computing"
    remedy = "pipeline stages, which gather fewer weights, or more tokens on each GPU"
    return Wall("the bytes of a step", network / compute, words, remedy)


@figures.house_style
def walls_plot(found: list[Wall], **_: object) -> figures.Picture:
    """A bar for each, in parts of its limit; the numbers beside it."""
    beyond = [wall for wall in found if wall.share > 1]
    words = "\n".join(f"Wall: {wall.name}. Remedy: {wall.remedy}." for wall in beyond)
    words = words or "No wall: fully sharded training alone will do."
    figure = figures.Figure((figures.WIDTH, 3 + 0.2 * len(beyond)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(1, color=series_colour(0), linestyle="--", zorder=0.5)
    card = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    for row, wall in enumerate(found):
        colour = series_colour(5 if wall.share > 1 else 2)
        length = min(wall.share, LONGEST)
        axes.barh(row, length, 0.36, color=tint(colour, 0.75), edgecolor=colour)
        more = " (longer than drawn)" if wall.share > LONGEST else ""
        axes.text(0.02, row + 0.36, wall.words + more, va="center", size=10, bbox=card)
    axes.set(xlim=(0, LONGEST), xlabel="multiples of the limit", xticks=[0, 1, 2, 3])
    figures.label_rows(axes, [wall.name for wall in found])
    axes.set_ylim(2.6, -0.4)
    figure.suptitle(words, x=0.01, ha="left", size=10.5, weight="bold")
    numbers = "; ".join(f"{wall.name}: {wall.words}" for wall in found)
    return figures.Picture(figure, f"{numbers}. {words}".replace("\n", " "))


def play_walls() -> ddp_workbook.Play:
    """Llama 3 405B on 16,384 GPUs, one sequence on each, to begin with."""
    return ddp_workbook.play(
        walls,
        walls_plot,
        ranks=None,
        stills=[
            {"parameters": "70B", "gpus": 512},
            {"link": "Ethernet 100G", "gpus": 512},
            {"sequence": 131072, "gpus": 64},
        ],
        parameters=ddp_workbook.slider("parameters", SIZES, "405B"),
        gpus=ddp_workbook.slider("GPUs", GPUS, 16384),
        sequence=ddp_workbook.slider("sequence length", SEQUENCES, 8192),
        link=ddp_workbook.choice("network", LINKS),
    )
