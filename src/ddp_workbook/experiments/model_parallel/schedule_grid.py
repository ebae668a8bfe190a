"""A schedule to fill in by typing or clicking: a line a rank, and real ranks that run it."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ddp_workbook.experiments.model_parallel.pipeline import (
    RankRun,
    arguments,
    run_rank,
    timeline_plot,
    typed_plot,
)
from ddp_workbook.experiments.model_parallel.schedules import ALL, STARTS, lines_of
from ddp_workbook.judging.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    Schedule,
    ScheduleRefused,
    read,
    split,
    stage_ranks_in_turn,
)
from manyranks import figures

if TYPE_CHECKING:
    from ddp_workbook.page.play import Play

EMPTY = "empty lines"
RANKS, MICRO_BATCHES = (2, 3, 4), (4, 6, 8)
ENOUGH_FOR_V = (2, 3), (6, 8)  # a V needs as many micro-batches as there are stages
LINE = {"width": "44em", "max_width": "75%"}
CSS = "<style>.ddpw-cells input{font-family:monospace}</style>"


def grid_class() -> type[Play]:
    """The player; imported late, not in ranks."""
    import ipywidgets

    from ddp_workbook.page.controls import WIDE, button, choice, slider
    from ddp_workbook.page.play import ROW, Play, RunResult, as_html
    from manyranks.figures.style import style

    class ScheduleGrid(Play):
        """Controls, a line of cells for each rank, and the picture of what the ranks did."""

        def __init__(
            self,
            starts: Iterable[str],
            rank_numbers: Sequence[int],
            batch_numbers: Sequence[int],
            stills: Sequence[Mapping[str, Any]],
            **first: Any,
        ) -> None:
            self.fields = [
                ipywidgets.Text(
                    description=f"rank {rank}", continuous_update=False, layout=LINE, style=WIDE
                )
                for rank in range(max(rank_numbers))
            ]
            self.filling = False
            super().__init__(
                run_rank,
                draw,
                slider("ranks", rank_numbers, first["ranks"]),
                {
                    "start": choice("start from", [*starts, EMPTY], first["start"]),
                    "micro_batches": slider("micro-batches", batch_numbers, first["micro_batches"]),
                },
                stills,
            )
            self.rows = [self._row(rank, field) for rank, field in enumerate(self.fields)]
            self._fill()

        def _row(self, rank: int, field: ipywidgets.Text) -> ipywidgets.Box:
            field.add_class("ddpw-cells")
            field.observe(self._on_change, names="value")
            buttons = []
            for words, change in (("+F", FORWARD), ("+B", BACKWARD), ("undo", "")):
                one = button(words)
                one.tooltip = f"{words}: rank {rank}"
                one.on_click(partial(self._on_click, field, change))
                buttons.append(one)
            return ipywidgets.HBox([field, *buttons])

        def _on_click(self, field: ipywidgets.Text, kind: str, _button: object) -> None:
            words = split(field.value)
            if kind:
                numbers = (
                    n for n in range(99) if f"{kind}{n}" not in [word.upper() for word in words]
                )
                words.append(f"{kind}{next(numbers)}")
            else:
                words = words[:-1]
            field.value = " ".join(words)

        def _on_change(self, change: Any = None) -> None:
            if self.filling:
                return
            if change and change["owner"] in self.controls.values():
                self._fill()
            super()._on_change(change)

        def _fill(self) -> None:
            """Put the chosen schedule into the lines, and show one for each rank."""
            values = super().values
            lines = first_lines(values)
            self.filling = True
            for rank, (field, row) in enumerate(zip(self.fields, self.rows, strict=True)):
                field.value = lines[rank] if rank < values["ranks"] else ""
                row.layout.display = "" if rank < values["ranks"] else "none"
                for one in row.children[1:]:  # they do not say which stage
                    several = len(stage_ranks_of(values)) > values["ranks"]
                    one.layout.display = "none" if several else ""
            self.filling = False

        @property
        def values(self) -> dict[str, Any]:
            """What the controls and the lines say now."""
            values = super().values
            lines = tuple(field.value for field in self.fields[: values["ranks"]])
            return values | {"lines": lines}

        def _run(self, values: dict, output: io.StringIO, stop: threading.Event | None) -> Any:
            cells, stage_ranks, micro_batches, unit = arguments(schedule_of(values))
            worker = {"stage_ranks": stage_ranks, "micro_batches": micro_batches, "unit": unit}
            return super()._run({"ranks": len(cells), "cells": cells} | worker, output, stop)

        def answer_to(
            self, values: dict[str, Any], stop: threading.Event | None = None
        ) -> RunResult:
            """As `Play`; of a schedule that is refused it shows the cells that were typed."""
            answer = super().answer_to(values, stop)
            if isinstance(answer.error, ScheduleRefused):
                with style():
                    picture = typed_plot(lines_in(values), stage_ranks_of(values))
                    answer.picture, answer.words = as_html(picture), repr(picture)
            return answer

        def _show(self, values: dict[str, Any], answer: RunResult) -> None:
            super()._show(values, answer)
            if isinstance(answer.error, ScheduleRefused):
                self.display.value = answer.report() + answer.picture

        def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
            bundle = super()._repr_mimebundle_()
            controls = ipywidgets.Box([*self.controls.values()], layout=ROW)
            parts = [ipywidgets.HTML(CSS), controls, *self.rows, self.status, self.display]
            return (
                bundle
                | dict(ipywidgets.VBox(parts)._repr_mimebundle_())
                | {kind: bundle[kind] for kind in ("text/html", "text/plain")}
            )

    return ScheduleGrid


def draw(runs: Sequence[RankRun], **values: Any) -> figures.Picture:
    """What the ranks did with the schedule in `values`."""
    return timeline_plot(schedule_of(values), runs)


def schedule_of(values: Mapping[str, Any]) -> Schedule:
    """The schedule that the controls and lines say. Raises ScheduleRefused."""
    return read(lines_in(values), values["micro_batches"], stage_ranks_of(values))


def lines_in(values: Mapping[str, Any]) -> Sequence[str]:
    """The lines that were typed; those of the start where none were, as in a still."""
    return values.get("lines") or first_lines(values)


def first_lines(values: Mapping[str, Any]) -> list[str]:
    """The lines to start from."""
    if values["start"] == EMPTY:
        return [""] * values["ranks"]
    return lines_of(values["start"], values["ranks"], values["micro_batches"])


def stage_ranks_of(values: Mapping[str, Any]) -> list[int]:
    """The rank of each stage."""
    if values["start"] == EMPTY:
        return stage_ranks_in_turn(values["ranks"])
    return ALL[values["start"]].stage_ranks(values["ranks"])


def play_schedule() -> Play:
    """1F1B with three ranks and six micro-batches, to begin with."""
    stills = [{"start": "GPipe"}, {"start": "interleaved"}, {"start": "zero bubble"}]
    return first_of_grid("1F1B", STARTS, RANKS, MICRO_BATCHES, stills)


def play_all_schedules() -> Play:
    """Those in a V as well, and such a one to begin with."""
    stills = [{"start": "zero bubble"}, {"start": "interleaved"}, {"start": "DualPipeV"}]
    return first_of_grid("ZBV", ALL, *ENOUGH_FOR_V, stills)


def first_of_grid(start: str, *settings: Any) -> Play:
    """A grid that shows this schedule for three ranks and six micro-batches."""
    make: Any = grid_class()
    grid = make(*settings, start=start, ranks=3, micro_batches=6)
    grid.first()
    return grid
