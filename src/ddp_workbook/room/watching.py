"""`ddp-workbook room`: the view of a room, again and again."""

import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape

from ddp_workbook.errors import WorkbookError
from ddp_workbook.files import write_whole
from ddp_workbook.room import board


def watch(folder: Path, page: Path | None, every: float, once: bool) -> int:
    """Show the room every `every` seconds until an interrupt, or once; return the exit code.

    `page` is written at each look. A folder that vanishes is said to be gone, with the last view
    below, and is looked for again. Raises WorkbookError if the page cannot be written.
    """
    console = Console()
    latest = look(folder, page, every, board.Room())
    if once:
        console.print(shown(latest))
        return int(bool(latest.problem))
    try:
        with Live(shown(latest), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                latest = look(folder, page, every, latest)
                live.update(shown(latest), refresh=True)
    except KeyboardInterrupt:
        return 0


def look(folder: Path, page: Path | None, every: float, before: board.Room) -> board.Room:
    """The room now; if it cannot be read, what was seen before, with the problem."""
    room = board.read_room(folder)
    if room.problem:
        room.attendees = before.attendees
    if page is not None:
        try:
            write_whole(page.absolute(), board.page(room, every))
        except OSError as error:
            raise WorkbookError(f"{page} cannot be written: {error.strerror}.") from None
    return room


def shown(room: board.Room) -> Group:
    """The table, and the sentences above it."""
    return Group(*map(escape, board.sentences(room, names=True)), board.table(room))
