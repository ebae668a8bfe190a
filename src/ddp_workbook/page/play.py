"""`play`: controls that real ranks answer with a new picture.

A change starts a thread which launches the ranks and draws, so the kernel stays free for the next
change. The latest change wins: it stops the ranks of the one before.
"""

import html
import io
import os
import re
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
from IPython import get_ipython

from ddp_workbook.page.controls import control, text_of
from manyranks.errors import LaunchInterrupted, WorkbookError
from manyranks.figures.player import player
from manyranks.figures.style import Picture, style
from manyranks.launcher import preconditions
from manyranks.launcher.calls import call_of
from manyranks.launcher.hang_detection import HangLimits
from manyranks.launcher.launch import run_ranks

RECORD = "DDP_WORKBOOK_STILLS"  # set by whoever makes pages to read: they have no kernel to ask
TIMEOUT_S = 60.0  # seconds until a run is given up for which nothing proves that it hangs
MAX_LINES = 20  # printed lines that are shown
ROW = ipywidgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="0.2em 2em")
REPORT = (
    "border-left:4px solid #c30c45; padding-left:0.6em; margin:0.3em 0; "
    "white-space:pre-wrap; word-break:normal; overflow-wrap:anywhere"  # JupyterLab breaks words
)
EARLIER = (
    '<details style="margin:1em 0 0.3em"><summary>The picture of the last run that got to its end'
    "</summary>{}</details>"
)
# The number beside a slider can be edited, and is lost then (ipywidgets 8.1).
STYLE = "<style>.ddpw-slider .widget-readout{pointer-events:none}</style>"
SIDES = ("left", "center", "right")  # a title stands at one of them
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

PLAYERS: weakref.WeakSet["Play"] = weakref.WeakSet()  # an interrupt stops what they run


@dataclass
class RunResult:
    """What came of one run: a picture as HTML, or the error; and what was printed."""

    seconds: float = 0.0
    picture: str = ""
    words: str = ""  # the picture's alternative text
    error: BaseException | None = None
    output: str = ""

    def report(self) -> str:
        """The error as HTML, "" if there is none; then the printed lines."""
        parts = []
        if self.error:
            text = html.escape(error_text(self.error))
            parts.append(f'<pre role="alert" style="{REPORT}">{text}</pre>')
        if self.output:
            parts.append(f"<pre>{html.escape(first_lines(self.output))}</pre>")
        return "".join(parts)


class Play:
    """What `play` returns: controls and a picture in JupyterLab, stills where no kernel is."""

    def __init__(
        self,
        run: Callable,
        draw: Callable,
        ranks: Any,
        controls: Mapping[str, Any],
        stills: Sequence[Mapping[str, Any]],
        meanwhile: Callable | None = None,
    ):
        self.run, self.draw, self.stills, self.meanwhile = run, draw, stills, meanwhile
        self.ranks = ranks
        if not (ranks is None or isinstance(ranks, int) or callable(ranks)):  # the first control
            controls = {"ranks": ranks, **controls}
        self.controls = {name: control(name, setting) for name, setting in controls.items()}
        self.buttons: list[ipywidgets.Button] = []
        self.status, self.display = ipywidgets.HTML(), ipywidgets.HTML()
        self.answer = RunResult()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._next_values: dict[str, Any] | None = None
        self._thread: threading.Thread | None = None
        for widget in self.controls.values():
            widget.observe(self._on_change, names="value")
        PLAYERS.add(self)

    @property
    def values(self) -> dict[str, Any]:
        """What the controls say now."""
        values = {name: widget.value for name, widget in self.controls.items()}
        return self.with_ranks(values)

    def with_ranks(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """These values, with the number of ranks."""
        if callable(self.ranks):
            return {"ranks": self.ranks(**values), **values}
        ranks = {"ranks": self.ranks} if isinstance(self.ranks, int) else {}
        return {**ranks, **values}

    def first(self) -> None:
        """Run once with the first values; raises what the run raises."""
        self.start()
        try:
            self.wait()
        except KeyboardInterrupt:
            self.stop()
            self.wait()
        if self.answer.error:
            raise self.answer.error

    def wait(self) -> None:
        """Until nothing runs."""
        while thread := self._thread:
            thread.join()

    def stop(self) -> None:
        """Stop the run in progress, if there is one; its report says where the ranks stood."""
        self._stop.set()

    # The run in progress, and the one that comes after it

    def start(self) -> None:
        """Run with the values of the controls; what runs now is stopped."""
        self._on_change()

    def _on_change(self, _change: object = None) -> None:
        stop_on_interrupt()
        with self._lock:
            self._stop.set()  # what runs now is out of date
            self._next_values, self._stop = self.values, threading.Event()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="play", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                values, self._next_values, stop = self._next_values, None, self._stop
                if values is None:
                    self._thread = None
                    return
            self.status.value = self._status(values)
            if self.meanwhile:
                with style():
                    self.display.value = as_html(self.meanwhile(**values))
            answer = self.answer_to(values, stop)
            if self._next_values is None:
                self._show(values, answer)

    def answer_to(self, values: dict[str, Any], stop: threading.Event | None = None) -> RunResult:
        """Run with these values and draw what came back."""
        answer, output, start = RunResult(), io.StringIO(), time.perf_counter()
        try:
            results = self._run(dict(values), output, stop)
            answer.seconds = time.perf_counter() - start
            with style():
                drawing = self.draw(results, **values)
                answer.picture, answer.words = as_html(drawing), repr(drawing)
        except (Exception, KeyboardInterrupt) as error:
            answer.error = error
        answer.output = COLOURS.sub("", output.getvalue())
        return answer

    def _run(self, values: dict, output: io.StringIO, stop: threading.Event | None) -> Any:
        ranks = values.pop("ranks", None)
        if ranks is None:
            return self.run(**values)
        preconditions.check_folder()
        limits, network = HangLimits(patience=TIMEOUT_S), values.pop("network", None)
        call = call_of(self.run, (), values, ranks)
        return run_ranks(
            call,
            ranks,
            quiet=True,
            hang_limits=limits,
            output=output,
            cancelled=stop,
            network=network,
        )

    # What the page shows

    def _show(self, values: dict[str, Any], answer: RunResult) -> None:
        last = self.answer.picture
        if not answer.picture:
            answer.picture, answer.words = last, self.answer.words
        self.answer = answer
        self.status.value = self._status(values, answer)
        picture = answer.picture
        if answer.error and picture:
            picture = EARLIER.format(picture)
        self.display.value = answer.report() + picture

    def _status(self, values: Mapping[str, Any], answer: RunResult | None = None) -> str:
        ranks = values.get("ranks")
        rank_count = "" if ranks is None else f"{ranks} rank{'s' * (ranks != 1)}"
        if self.ranks == 1:  # not a number that the reader chose: the run is not about ranks
            rank_count = "one process"
        if answer is None:
            words = f"{rank_count or 'computing'} …"
        elif answer.error:
            words = "stopped: see below"
        else:
            words = f"{rank_count} answered in {answer.seconds:.2f} s" if rank_count else ""
        return f'{STYLE}<div role="status" style="font-size:90%">{words}&nbsp;</div>'

    def _still_player(self) -> str:
        """A player of the first picture and the stills, each from a run of its own."""
        first, varying = (
            {name: widget.value for name, widget in self.controls.items()},
            {name for still in self.stills for name in still},
        )
        frames = []
        for still in ({}, *self.stills):
            values = self.with_ranks({**first, **still})
            answer = self.answer_to(values) if still else self.answer
            label = ", ".join(text_of(values[name]) for name in values if name in varying)
            frames.append((label, answer.report() + answer.picture))
        about = [widget.description for name, widget in self.controls.items() if name in varying]
        return player(frames, ", ".join(about), (0, -1))

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        controls = ipywidgets.Box([*self.controls.values(), *self.buttons], layout=ROW)
        box = ipywidgets.VBox([controls, self.status, self.display])
        wants_stills = self.stills and os.environ.get(RECORD)
        still = self._still_player() if wants_stills else self.answer.report() + self.answer.picture
        return dict(box._repr_mimebundle_()) | {"text/html": still, "text/plain": repr(self)}

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}: {text_of(value)}" for name, value in self.values.items())
        return f"{settings}\n{self.answer.words}"


def play(
    run: Callable,
    draw: Callable,
    *,
    ranks: Any = 2,
    stills: Sequence[Mapping[str, Any]] = (),
    meanwhile: Callable | None = None,
    **controls: Any,
) -> Play:
    """Controls above a picture: each change runs `run` on real ranks, and `draw` draws the answer.

    Put the worker into a file, as for `launch`, and make `play` the last line of a cell:

        %%writefile work/waits.py
        import time, torch, torch.distributed as dist

        def waits(late):
            dist.init_process_group("gloo")
            if dist.get_rank() == 0:
                time.sleep(late)
            begun = time.perf_counter()
            dist.barrier()
            return time.perf_counter() - begun

        import pandas as pd
        from manyranks import figures
        from ddp_workbook import play, slider
        from work.waits import waits

        def draw(seconds, ranks, late):
            waited = pd.DataFrame({"waited": seconds})
            return figures.bars(waited, "s in barrier", "How long each rank waited", by="rank")

        play(waits, draw, ranks=4, late=slider("rank 0 comes late, s", (0, 0.1, 0.2, 0.5)))

    `run` gets the value of each control under its name, and what its ranks return goes to `draw` as
    a list, with the same values and `ranks` by name. `draw` returns a Picture, a matplotlib Figure,
    a DataFrame, or anything else that a page can show. A control is what `slider`, `choice` or
    `switch` returns, or a list of values, or True or False; `ranks` may be one, too, or a
    function of the others. `ranks=None` calls `run` in the kernel itself, for a formula. A control
    called `network` is for `launch` and not for `run`: it orders the ranks' network. A change stops
    the run before it. A run that hangs is stopped, and the page shows where its ranks stood.

    `meanwhile` draws, from the same values alone, what is known before the ranks have answered.
    `stills` are values to show where no kernel is, such as [{"late": 0.5}], the most telling last.
    Raises what the first run raises, as `launch` does, and ControlRefused for an unusable control.
    """
    widget = Play(run, draw, ranks, controls, stills, meanwhile)
    widget.first()
    return widget


def as_html(drawing: Any) -> str:
    """What `draw` returned, as HTML."""
    if hasattr(drawing, "savefig"):
        titles = [axes.get_title(where) for axes in drawing.axes for where in SIDES]
        drawing = Picture(drawing, "; ".join(filter(None, titles)) or "a figure without a title")
    markup = getattr(drawing, "_repr_html_", lambda: None)()
    return markup or f"<pre>{html.escape(repr(drawing))}</pre>"


def error_text(error: BaseException) -> str:
    """What a page says of this error: a workbook's own text, or the last lines of a traceback."""
    if isinstance(error, WorkbookError):
        return COLOURS.sub("", error.explain())
    if isinstance(error, LaunchInterrupted):
        return COLOURS.sub("", str(error))
    return "".join(traceback.format_exception(error, limit=-2)).rstrip()


def first_lines(output: str) -> str:
    """The first lines of what the ranks printed, and how many more there are."""
    lines = output.splitlines()
    more = [f"… and {len(lines) - MAX_LINES:,} more lines"] if len(lines) > MAX_LINES else []
    return "\n".join([*lines[:MAX_LINES], *more])


# Interrupts


def stop_on_interrupt() -> None:
    """Let the kernel's interrupt stop players also while no cell runs: it ignores one otherwise."""
    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is not None:
        kernel.io_loop.add_callback(_listen)


def _listen() -> None:
    """In the main thread, between two cells."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, frame: stop_all())


def stop_all() -> None:
    """Stop what all players run."""
    for widget in set(PLAYERS):
        widget.stop()
