"""From the moment a control is let go to the new picture, for each player of the pages."""

import itertools
import re
import time
from importlib import import_module
from typing import NamedTuple

from benchmarks.table import Line, at_most, spread
from ddp_workbook.page import pages
from ddp_workbook.page.play import Play

CHANGES = 20
LIMIT_S = 0.5  # seconds
LIMITS_S = {  # seconds, of players that run more than a toy model
    "play_memory": 1.5,  # shows its formula at once
    "play_hosts": 2.0,  # torchrun's own meeting asks once a second
    "play_batch": 1.5,  # six epochs
    "play_step": 1.0,  # times up to forty steps
    "play_schedule": 1.0,  # its cells last 10 or 20 ms
    "play_all_schedules": 1.0,  # the same
    "play_order": 1.5,  # records the calls of four ranks
}


DEMOS = re.compile(r"from ddp_workbook\.experiments import (\w+) as demos")
PLAY_CALL = re.compile(r"demos\.(?:(\w+)\.)?(play_\w+)\(\)")


class Player(NamedTuple):
    """Something to play with on a page: the function that makes it, in its module."""

    page: str
    module: str
    function: str

    def make(self) -> Play:
        """Run it once."""
        return getattr(import_module(self.module), self.function)()


def players() -> list[Player]:
    """All that the pages have, in their order."""
    result = []
    for path in pages.all_pages():
        text = path.read_text(encoding="utf-8")
        for subject, function in PLAY_CALL.findall(text):
            chapter = DEMOS.search(text)[1]
            parts = ["ddp_workbook.experiments", chapter, *filter(None, [subject])]
            result.append(Player(path.stem, ".".join(parts), function))
    return result


def measure(quick: bool = False) -> list[Line]:
    """A line for each player: the median of twenty changes of its first control."""
    return [line(player, 3 if quick else CHANGES) for player in players()]


def line(player: Player, changes: int) -> Line:
    """The median of some changes, one after the other."""
    widget = player.make()
    control = next(iter(widget.controls.values()))
    values = [value for _, value in control.options if value != control.value][:3]
    timings = []
    for value in itertools.islice(itertools.cycle([*values, control.value]), changes):
        start = time.perf_counter()
        control.value = value
        widget.wait()
        timings.append(time.perf_counter() - start)
    if widget.answer.error:
        raise widget.answer.error
    seconds = spread(timings)
    row = Line(
        f"{player.page}: {control.description!r} moved, new picture",
        f"{seconds.median:.2f} s",
        seconds.median,
        f"quartiles {seconds.q1:.2f} and {seconds.q3:.2f} s",
    )
    return at_most(row, LIMITS_S.get(player.function, LIMIT_S))
