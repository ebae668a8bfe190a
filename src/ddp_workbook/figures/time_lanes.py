"""Lanes over time: a bar for each event, from its start to its end."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ddp_workbook.figures.bar_chart import THICK, Look
from ddp_workbook.figures.palette import (
    pale_look,
    part_look,
    rank_colour,
    rank_look,
    series_colour,
)
from ddp_workbook.figures.style import WIDTH, Picture, label_rows, number

SHORTEST = 1 / 250  # of the axis; a shorter bar could not be seen


def lanes(
    events: pd.DataFrame,
    unit: str,
    about: str,
    *,
    order: Sequence[str] | None = None,
    by: Literal["part", "rank"] | Callable[[dict[str, Any]], Look] = "part",
    pale: Collection[str] = (),
    keys: Mapping[str, Look] | None = None,
) -> Picture:
    """A lane for each of `lane`, in it a bar for each event; a panel for each of `panel`, if any.

    `events` has the columns lane, what, start and end, in `unit`; and text, if words stand in the
    bars. `order` names the lanes from the top. `by` says what has a look of its own: the part that
    an event is (`what`), or the rank (lane r is rank r), or a function of the event, as a dict.
    Events whose `what` is in `pale` are drawn pale and hatched: a rank waits. `keys` is the legend,
    words and their looks, by default of parts or of what is pale. `about` begins the alt text, a
    sentence without its full stop.

    Raises ValueError for a table without rows, and for an event that ends before it starts.
    """
    if events.empty:
        raise ValueError("There is nothing to draw: no event was given.")
    if (events["end"] < events["start"]).any():
        wrong = events[events["end"] < events["start"]].iloc[0]
        raise ValueError(f"{wrong['what']} on {wrong['lane']} ends before it starts.")
    names = list(order if order is not None else events["lane"].unique())
    panels = dict(list(events.groupby("panel", sort=False))) if "panel" in events else {"": events}
    look = _look_by(by, names, pale)
    if keys is None:
        keys = _keys(by, list(events["what"].unique()), pale)
    height = 0.8 + 0.42 * len(names) + 0.3 * bool(keys) + 0.25 * ("panel" in events)
    figure = Figure((WIDTH, height), layout="constrained")
    across = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    end = events["end"].max()
    for axes, (title, some) in zip(across, panels.items(), strict=True):
        for event in some.to_dict("records"):
            _draw(axes, event, names.index(event["lane"]), look(event), end * SHORTEST)
        axes.set(title=title, xlabel=unit, xlim=(0, end * 1.01))
        axes.grid(axis="x")
        label_rows(axes, names)
    handles = [Patch(label=kind, **of_kind) for kind, of_kind in keys.items()]
    if handles:
        across_legend = 6 if sum(map(len, keys)) < 75 else 3
        place_legend = {"loc": "outside upper left", "ncols": across_legend}
        figure.legend(handles=handles, handlelength=1.6, **place_legend)
    return Picture(figure, f"{about}, {unit}. {_listed(panels)}.")


def _look_by(
    by: str | Callable[[dict[str, Any]], Look], names: Sequence[str], pale: Collection[str]
) -> Callable[[dict[str, Any]], Look]:
    def look(event: dict[str, Any]) -> Look:
        if by == "part":
            return part_look(event["what"])
        rank = names.index(event["lane"])
        return pale_look(rank_colour(rank)) if event["what"] in pale else rank_look(rank)

    return by if callable(by) else look


def _keys(by: object, kinds: Sequence[str], pale: Collection[str]) -> dict[str, Look]:
    """The legend: what the parts look like, or what is pale."""
    grey = series_colour(0)
    if by == "part":
        return {kind: part_look(kind) for kind in kinds}
    if not pale:
        return {}
    return {kind: pale_look(grey) if kind in pale else {"facecolor": grey} for kind in kinds}


def _draw(axes: Axes, event: dict[str, Any], row: int, look: Look, shortest: float) -> None:
    length = max(event["end"] - event["start"], shortest)
    axes.barh(row, length, THICK, left=event["start"], **look)
    if event.get("text"):
        middle = event["start"] + length / 2
        card = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}
        axes.text(middle, row, event["text"], ha="center", va="center", size=9, bbox=card)


def _listed(panels: dict[str, pd.DataFrame]) -> str:
    """Every event in words: "rank 0: works from 0 to 3, waits from 3 to 5; rank 1 …"."""
    words = []
    for title, events in panels.items():
        of_lanes = [
            f"{lane}: "
            + ", ".join(
                f"{event['what']} from {number(event['start'])} to {number(event['end'])}"
                for event in some.to_dict("records")
            )
            for lane, some in events.groupby("lane", sort=False)
        ]
        words.append((f"{title}: " if title else "") + "; ".join(of_lanes))
    return ". ".join(words)
