"""Chapter 05: messages between ranks, round by round."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ddp_workbook.figures.palette import rank_colour
from ddp_workbook.figures.style import FAINT, INK, WIDTH, label_rows, style

Rounds = Sequence[Sequence[tuple[int, int]]]  # by round: pairs (from, to)


@style()
def rounds_plot(ways: Mapping[str, Rounds], root: int = 0) -> Figure:
    """A panel a way: arrows are messages, in the sender's colour; lines are ranks with the data."""
    ranks = 1 + max(to for rounds in ways.values() for pairs in rounds for _, to in pairs)
    figure = Figure((WIDTH, 0.8 + 0.32 * ranks), layout="constrained")
    panels = figure.subplots(1, len(ways), sharey=True, sharex=True, squeeze=False)[0]
    last = max(map(len, ways.values()))
    for axes, (way, rounds) in zip(panels, ways.items(), strict=True):
        axes.hlines(range(ranks), 0, last, color=FAINT, linewidth=1)
        has = {root: 0} | {to: n for n, pairs in enumerate(rounds, 1) for _, to in pairs}
        for rank, since in has.items():
            axes.hlines(rank, since, last, color=rank_colour(root), linewidth=3)
        for number, pairs in enumerate(rounds, 1):
            for one, other in pairs:
                look = {"arrowstyle": "-|>", "color": rank_colour(one), "linewidth": 1.6}
                ends = (number, other), (number - 1, one)
                axes.annotate("", *ends, arrowprops=look | {"shrinkA": 0, "shrinkB": 0})
        axes.axvline(len(rounds), color=INK, linestyle="dashed", linewidth=1.2)
        axes.set(title=f"{way}: {len(rounds)} rounds", xlabel="rounds")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        label_rows(axes, [f"rank {rank}" for rank in range(ranks)])
    return figure


def alt_text_of_rounds(ways: Mapping[str, Rounds]) -> str:
    """Who sends to whom in which round."""
    texts = []
    for way, rounds in ways.items():
        told = (
            f"round {number}: " + ", ".join(f"{one} to {other}" for one, other in pairs)
            for number, pairs in enumerate(rounds, 1)
        )
        texts.append(f"The {way} needs {len(rounds)} rounds: {'; '.join(told)}.")
    return "Messages between ranks, round by round. " + " ".join(texts)
