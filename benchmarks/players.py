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
LONGEST = 0.5  # seconds
ALLOWED = {  # seconds, of players that run more than a toy model
    "play_memory": 1.5,  # shows its formula at once
    "play_hosts": 2.0,  # torchrun's own meeting asks once a second
    "play_batch": 1.5,  # six epochs
    "play_step": 1.0,  # times eight steps
}


DEMOS = re.compile(r"from ddp_workbook\.experiments import (\w+) as demos")
PLAYED = re.compile(r"demos\.(?:(\w+)\.)?(play_\w+)\(\)")


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
    found = []
    for path in pages.all_pages():
        text = path.read_text(encoding="utf-8")
        for subject, function in PLAYED.findall(text):
            chapter = DEMOS.search(text)[1]
            parts = ["ddp_workbook.experiments", chapter, *filter(None, [subject])]
            found.append(Player(path.stem, ".".join(parts), function))
    return found


def measure(quick: bool = False) -> list[Line]:
    """A line for each player: the median of twenty changes of its first control."""
    return [line(player, 3 if quick else CHANGES) for player in players()]


def line(player: Player, changes: int) -> Line:
    """The median of some changes, one after the other."""
    made = player.make()
    control = next(iter(made.controls.values()))
    others = [value for _, value in control.options if value != control.value][:3]
    taken = []
    for value in itertools.islice(itertools.cycle([*others, control.value]), changes):
        begun = time.perf_counter()
        control.value = value
        made.wait()
        taken.append(time.perf_counter() - begun)
    if made.answer.error:
        raise made.answer.error
    seconds = spread(taken)
    found = Line(
        f"{player.page}: {control.description!r} moved, new picture",
        f"{seconds.median:.2f} s",
        seconds.median,
        f"quartiles {seconds.q1:.2f} and {seconds.q3:.2f} s",
    )
    return at_most(found, ALLOWED.get(player.function, LONGEST))
