"""Lanes over time: a bar for each event, from its start to its end."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from manyranks.figures.bar_chart import BAR_THICKNESS
from manyranks.figures.palette import (
    pale_look,
    part_look,
    rank_look,
    series_look,
    tint,
)
from manyranks.figures.style import WIDTH, FillStyle, Picture, label_rows, name_looks, number

MIN_LENGTH = 1 / 250  # of the axis; a shorter bar could not be seen


def lanes(
    events: pd.DataFrame,
    unit: str,
    about: str,
    *,
    order: Sequence[str] | None = None,
    by: Literal["part", "rank"] = "part",
    pale: Collection[str] = (),
    tinted: Collection[str] = (),
    keys: Mapping[str, FillStyle] | None = None,
) -> Picture:
    """A lane for each of `lane`, in it a bar for each event; a panel for each of `panel`, if any.

    `events` has the columns lane, what, start and end, in `unit`; and text, if words stand in the
    bars. `order` names the lanes from the top. `by` says what has a look of its own: the part that
    an event is (`what`), or the rank: that of a column `rank`, where nan is none and grey, or else
    the lane's place. With ranks, events whose `what` is in `pale` are drawn pale (a rank waits),
    those in `tinted` lighter and with an outline (it prepares). `keys` is the legend, words and
    their looks, by default of parts or of what is not drawn in full. `about` begins the alt text, a
    sentence without its full stop.

    Raises ValueError for a table without rows, and for an event that ends before it starts.
    """
    if events.empty:
        raise ValueError("There is nothing to draw: no event was given.")
    for event in events[~(events["end"] >= events["start"])].to_dict("records"):  # nan, too
        words = "ends before it starts, or at no known time"
        raise ValueError(f"{event['what']} on {event['lane']} {words}.")
    names = list(order if order is not None else events["lane"].unique())
    if by == "rank":
        events = events.assign(rank=events.get("rank", events["lane"].map(names.index)))
    panels = dict(list(events.groupby("panel", sort=False))) if "panel" in events else {"": events}
    if keys is None and (by == "part" or pale or tinted):
        keys = {what: _look(by, what, None, pale, tinted) for what in events["what"].unique()}
    height = 0.8 + 0.42 * len(names) + 0.3 * bool(keys) + 0.25 * ("panel" in events)
    figure = Figure((WIDTH, height), layout="constrained")
    across = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    end = events["end"].max()
    for axes, (title, panel_events) in zip(across, panels.items(), strict=True):
        for event in panel_events.to_dict("records"):
            look = _look(by, event["what"], event.get("rank"), pale, tinted)
            _draw(axes, event, names.index(event["lane"]), look, end * MIN_LENGTH)
        axes.set(title=title, xlabel=unit, xlim=(0, end * 1.01))
        axes.grid(axis="x")
        label_rows(axes, names)
    if keys:
        name_looks(figure, keys)
    return Picture(figure, f"{about}, {unit}. {_describe_lanes(panels)}.")


def _look(
    by: str, what: str, rank: float | None, pale: Collection[str], tinted: Collection[str]
) -> FillStyle:
    if by == "part":
        return part_look(what)
    full = series_look(0) if rank is None or rank != rank else rank_look(int(rank))
    colour = full["facecolor"]
    if what in pale:
        return pale_look(colour)
    if what in tinted:
        return {"facecolor": tint(colour, 0.4), "edgecolor": colour, "linewidth": 1}
    return full


def _draw(axes: Axes, event: dict[str, Any], row: int, look: FillStyle, shortest: float) -> None:
    length = max(event["end"] - event["start"], shortest)
    axes.barh(row, length, BAR_THICKNESS, left=event["start"], **look)
    if event.get("text"):
        middle = event["start"] + length / 2
        card = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}
        axes.text(middle, row, event["text"], ha="center", va="center", size=9, bbox=card)


def _describe_lanes(panels: dict[str, pd.DataFrame]) -> str:
    """Every event in words: "rank 0: works from 0 to 3, 3 to 4, waits from 4 to 5; rank 1: …"."""
    words = []
    for title, events in panels.items():
        lanes = []
        for lane, lane_events in events.groupby("lane", sort=False):
            runs = [
                f"{what} from " + ", ".join(f"{number(e.start)} to {number(e.end)}" for e in alike)
                for what, alike in itertools.groupby(
                    lane_events.itertuples(), lambda event: event.what
                )
            ]
            lanes.append(f"{lane}: {', '.join(runs)}")
        words.append((f"{title}: " if title else "") + "; ".join(lanes))
    return ". ".join(words)
