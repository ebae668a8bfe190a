"""A player whose picture moves while its ranks run, and whose buttons reach into the run."""

import io
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddp_workbook.page.controls import button
from ddp_workbook.page.play import Play, RunResult, as_html
from manyranks.figures.style import style

FRAME_S = 0.3  # seconds from picture to picture


class LivePlayer(Play):
    """As `Play`, with `frame()`, the picture so far (or None), and buttons.

    `run` gets the values of the controls, and as `output` and `cancelled` what `run_ranks` takes by
    these names. A button's function gets the player.
    """

    def __init__(
        self,
        run: Callable,
        draw: Callable,
        frame: Callable,
        buttons: Mapping[str, Callable[["LivePlayer"], None]],
        stills: Sequence[Mapping[str, Any]],
        **controls: Any,
    ) -> None:
        super().__init__(run, draw, None, controls, stills)
        self.frame = frame
        for words, on_press in buttons.items():
            widget = button(words)
            widget.on_click(lambda _, on_press=on_press: on_press(self))
            self.buttons.append(widget)

    def _run(self, values: dict, output: io.StringIO, stop: threading.Event | None) -> Any:
        return self.run(output=output, cancelled=stop, **values)

    def answer_to(self, values: dict[str, Any], stop: threading.Event | None = None) -> RunResult:
        """Run with these values; meanwhile the page shows how far it is."""
        end = threading.Event()
        moving = threading.Thread(target=self._move, args=(end,), daemon=True)
        moving.start()
        try:
            return super().answer_to(values, stop)
        finally:
            end.set()
            moving.join()

    def _move(self, end: threading.Event) -> None:
        while not end.wait(FRAME_S):
            with style():
                picture = self.frame()
                if picture is not None and not end.is_set():
                    self.display.value = as_html(picture)
