"""Page 00's player: a lane for each rank, its slider beside it, also where the ranks hang."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ddp_workbook
from ddp_workbook.experiments.start_here.sum_of_ranks import (
    DIES,
    JOINS,
    LATE,
    OTHER_CALL,
    SHAPE,
    SumResult,
    run_sum,
)
from manyranks import figures
from manyranks.errors import RankFailed

if TYPE_CHECKING:  # imported with the first picture
    from matplotlib.axes import Axes

DPI, SLIDER_PX = 96, 250  # CSS pixels an inch, and of a slider: with the picture as wide as others
# The picture, in inches
WIDE, TOP, LANE, BOX = 6.0, 0.42, 0.56, 0.44
RANKS, PAUSE, SUM, AFTER, END = (0.05, 1.85), (2.15, 1.05), (3.5, 1.4), (5.15, 0.8), (2.6, 3.35)
TEXTS = ("text/html", "text/plain")  # for whoever has no widgets
PAUSE_S = 0.5  # a shorter wait is the machine's, not a rank's


def play_sum() -> ddp_workbook.Play:
    """One sum, played with: the number of each of four ranks, and how rank 3 behaves."""
    controls = {
        f"x_{rank}": ddp_workbook.slider(f"x of rank {rank}", range(-5, 21), rank + 1)
        for rank in range(4)
    }
    behaves = ddp_workbook.choice("rank 3", (JOINS, LATE, OTHER_CALL, DIES, SHAPE))
    stills: list[Mapping[str, object]] = [
        {"x_3": 20},
        *({"rank_3": how} for how in (LATE, DIES, SHAPE, OTHER_CALL)),
    ]
    widget = player_class()(run_sum, sum_plot, 4, {**controls, "rank_3": behaves}, stills)
    widget.first()
    return widget


def player_class() -> type[ddp_workbook.Play]:
    """A player whose sliders stand beside their ranks' lanes; imported late, not in ranks."""
    import ipywidgets

    from ddp_workbook.page.play import Play, RunResult, as_html

    class SumPlay(Play):
        """Each slider stands beside its rank's lane; a run that hangs has a picture, too."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.report = ipywidgets.HTML()

        def answer_to(
            self, values: dict[str, Any], stop: threading.Event | None = None
        ) -> RunResult:
            """As `Play`; where ranks failed or hung, the picture shows where each of them stood."""
            answer = super().answer_to(values, stop)
            if isinstance(answer.error, RankFailed):
                picture = stuck_plot(answer.error, **values)
                answer.picture, answer.words = as_html(picture), repr(picture)
            return answer

        def _show(self, values: dict[str, Any], answer: RunResult) -> None:
            super()._show(values, answer)
            self.display.value = self.answer.picture
            self.report.value = self.answer.report()

        def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
            bundle = super()._repr_mimebundle_()
            *sliders, behaves = self.controls.values()
            lane, top = round(LANE * DPI), round((TOP - (LANE - BOX) / 2) * DPI)
            for one in sliders:
                one.layout.width, one.layout.height = f"{SLIDER_PX}px", f"{lane}px"
                one.layout.margin = "0"
            side = ipywidgets.VBox(sliders, layout={"padding": f"{top}px 0 0 0"})
            row = ipywidgets.Box([side, self.display], layout={"flex_flow": "row wrap"})
            box = ipywidgets.VBox([row, behaves, self.status, self.report])
            return dict(box._repr_mimebundle_()) | {kind: bundle[kind] for kind in TEXTS}

    return SumPlay


@figures.house_style
def sum_plot(of_ranks: Sequence[SumResult], rank_3: str = JOINS, **_: object) -> figures.Picture:
    """A lane for each rank: its value, how long it waited, the sum, its value afterwards."""
    count = len(of_ranks)
    axes = _lanes(count)
    _heading(axes, RANKS, "four processes")
    _heading(axes, SUM, "one sum")
    _heading(axes, AFTER, "afterwards")
    terms = " + ".join(f"{result.before:g}" for result in of_ranks)
    figures.box(
        axes, (SUM[0], TOP), (SUM[1], count * LANE - (LANE - BOX)), f"all_reduce\n\n{terms}"
    )
    for rank, result in enumerate(of_ranks):
        about = f"rank {rank}: x = {result.before:g}\nprocess {result.process}"
        _step(axes, rank, RANKS, about, rank)
        _step(axes, rank, AFTER, f"x = {result.after:g}", rank)
        start = sum(RANKS)
        if pause := _pause(rank, result, rank_3):
            _arrow(axes, rank, start, PAUSE[0])
            if rank == 3 and rank_3 == LATE:
                _step(axes, rank, PAUSE, pause, rank)
            else:
                _step(axes, rank, PAUSE, pause)
            start = sum(PAUSE)
        _arrow(axes, rank, start, SUM[0])
        _arrow(axes, rank, sum(SUM), AFTER[0])
    before = ", ".join(f"{result.before:g}" for result in of_ranks)
    after = ", ".join(f"{result.after:g}" for result in of_ranks)
    processes = ", ".join(str(result.process) for result in of_ranks)
    return figures.Picture(
        axes.figure,
        f"One program runs in {count} processes, numbered {processes}. Ranks 0 to "
        f"{count - 1} begin with {before}. all_reduce adds these up. Afterwards the ranks "
        f"have {after}. The longest call of all_reduce took "
        f"{max(result.seconds for result in of_ranks):.2f} s, the shortest "
        f"{min(result.seconds for result in of_ranks):.2f} s.",
    )


@figures.house_style
def stuck_plot(error: RankFailed, ranks: int, rank_3: str = JOINS, **x: float) -> figures.Picture:
    """A lane for each rank, from its value to the place where it stood as the run was stopped."""
    stands = {position.rank: position.doing for position in error.positions}
    if error.returncode is not None:
        stands[error.rank] = rank_3
    places = [stands.get(rank, "was stopped") for rank in range(ranks)]
    axes = _lanes(ranks)
    _heading(axes, RANKS, "four processes")
    _heading(axes, END, "where each rank stood")
    first = 0
    for words, group in itertools.groupby(places):
        count = len(list(group))
        tall = count * LANE - (LANE - BOX)
        corner = (END[0], TOP + first * LANE)
        figures.box(axes, corner, (END[1], tall), words, first if count == 1 else None, fontsize=10)
        first += count
    for rank in range(ranks):
        value = f"{x[f'x_{rank}']:g}"
        brings = f"{value}, {value}" if rank == 3 and rank_3 == SHAPE else value
        _step(axes, rank, RANKS, f"rank {rank}: x = {brings}", rank)
        _arrow(axes, rank, sum(RANKS), END[0])
    words = "; ".join(f"rank {rank} {place}" for rank, place in enumerate(places))
    return figures.Picture(axes.figure, f"The run was stopped: {words}.")


def _pause(rank: int, result: SumResult, rank_3: str) -> str:
    """What a rank did for a noticeable time before the sum: "waits 2.0 s"; "" for nothing."""
    if rank == 3 and rank_3 == LATE:
        return LATE
    return f"waits {result.seconds:.1f} s" if result.seconds >= PAUSE_S else ""


def _lanes(ranks: int) -> Axes:
    return figures.sheet(WIDE, TOP + ranks * LANE)


def _heading(axes: Axes, column: tuple[float, float], words: str) -> None:
    left, width = column
    axes.text(left + width / 2, 0.2, words, ha="center", va="center", weight="bold", fontsize=10)


def _step(
    axes: Axes, lane: int, column: tuple[float, float], words: str, rank: int | None = None
) -> None:
    left, width = column
    figures.box(axes, (left, TOP + lane * LANE), (width, BOX), words, rank, fontsize=10)


def _arrow(axes: Axes, rank: int, start: float, end: float) -> None:
    y = TOP + rank * LANE + BOX / 2
    figures.arrow(axes, (start, y), (end, y), rank)
