"""A player whose picture moves while its ranks run, and whose buttons reach into the run."""

import io
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddp_workbook.page.controls import button
from ddp_workbook.page.play import Play, RunResult, as_html
from manyranks.figures.style import style

FRAME = 0.3  # seconds from picture to picture


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
        for words, pressed in buttons.items():
            made = button(words)
            made.on_click(lambda _, pressed=pressed: pressed(self))
            self.buttons.append(made)

    def _run(self, values: dict, output: io.StringIO, stop: threading.Event | None) -> Any:
        return self.run(output=output, cancelled=stop, **values)

    def answer_to(self, values: dict[str, Any], stop: threading.Event | None = None) -> RunResult:
        """Run with these values; meanwhile the page shows how far it is."""
        ended = threading.Event()
        moving = threading.Thread(target=self._move, args=(ended,), daemon=True)
        moving.start()
        try:
            return super().answer_to(values, stop)
        finally:
            ended.set()
            moving.join()

    def _move(self, ended: threading.Event) -> None:
        while not ended.wait(FRAME):
            with style():
                drawn = self.frame()
                if drawn is not None and not ended.is_set():
                    self.shown.value = as_html(drawn)
