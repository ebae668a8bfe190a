"""The instructor's view: who is where, and at which exercise most are stuck."""

import html
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from ddp_workbook.errors import WorkbookError
from ddp_workbook.files import write_whole

LARGEST = 1 << 16  # bytes of an attendee's file
AWAY = 10  # minutes without news
MANY = 3  # attempts that did not pass, after which somebody counts as stuck


@dataclass(frozen=True)
class ExerciseProgress:
    """An attendee's news about one exercise."""

    state: str
    attempts: int
    advice: str
    time: float


@dataclass(frozen=True)
class Attendee:
    """What an attendee's file in the room's folder says."""

    name: str
    page: str
    time: float
    exercises: dict[str, ExerciseProgress]

    @property
    def solved(self) -> list[str]:
        """The exercises that are solved."""
        return [name for name, work in self.exercises.items() if work.state == "solved"]

    @property
    def open(self) -> tuple[str, ExerciseProgress] | None:
        """The exercise that was tried last, if it is not solved."""
        latest = max(self.exercises.items(), key=lambda item: item[1].time, default=None)
        return latest if latest and latest[1].state != "solved" else None


@dataclass(frozen=True)
class Stuck:
    """An exercise with those who are stuck at it, and the advice that most of them got."""

    exercise: str
    people: list[str]
    advice: str
    times: int


@dataclass
class Board:
    """All attendees in the order of their names, and the files that could not be read."""

    attendees: list[Attendee] = field(default_factory=list)
    corrupt: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def stuck(self) -> list[Stuck]:
        """Exercises at which somebody is stuck, those with most people first."""
        found: dict[str, list[tuple[str, str]]] = {}
        for attendee in self.attendees:
            for name, work in attendee.exercises.items():
                if work.state != "solved" and work.attempts >= MANY:
                    found.setdefault(name, []).append((attendee.name, work.advice))
        rows = []
        for name, people in found.items():
            advice, times = Counter(words for _, words in people).most_common(1)[0]
            rows.append(Stuck(name, [who for who, _ in people], advice, times))
        return sorted(rows, key=lambda row: (-len(row.people), row.exercise))


def read_board(folder: Path) -> Board:
    """Read every file of the folder; one that is damaged is named, and the others are shown."""
    board = Board()
    if not folder.is_dir():
        board.problem = f"{folder} is {'not a folder' if folder.exists() else 'not there'}"
        return board
    for path in sorted(folder.glob("*.json")):
        if path.name.startswith("."):
            continue  # half-written: its writer renames it
        try:
            board.attendees.append(read_attendee(path))
        except FileNotFoundError:
            continue  # its owner has just left
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            board.corrupt.append(path.name)
    # Two may have chosen the same name: the second, in the order of the files, gets a number.
    seen: Counter[str] = Counter()
    for number, attendee in enumerate(board.attendees):
        seen[attendee.name] += 1
        if (count := seen[attendee.name]) > 1:
            board.attendees[number] = replace(attendee, name=f"{attendee.name} ({count})")
    board.attendees.sort(key=lambda attendee: attendee.name.casefold())
    return board


def read_attendee(path: Path) -> Attendee:
    """One file. Raises ValueError, TypeError, KeyError or AttributeError if it is damaged."""
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path.name} has more than {LARGEST:,} bytes")
    shared = json.loads(path.read_text(encoding="utf-8"))
    exercises = {
        str(name): ExerciseProgress(
            str(news["state"]), int(news["attempts"]), str(news["advice"]), float(news["time"])
        )
        for name, news in shared["exercises"].items()
    }
    return Attendee(str(shared["name"]), str(shared["page"]), float(shared["time"]), exercises)


HEADINGS = ("who", "page", "solved", "working on", "attempts", "minutes ago")
TO_ALL = 3  # the first columns may be projected: the others show who is stuck


def rows(board: Board, now: float) -> list[tuple[str, ...]]:
    """A row for each attendee, in the order of HEADINGS."""
    made: list[tuple[str, ...]] = []
    for attendee in board.attendees:
        name, work = attendee.open or ("", None)
        since = max(0.0, now - attendee.time) / 60  # clocks differ
        minutes = f"{since:.0f}{' (away?)' if since > AWAY else ''}"
        attempts = str(work.attempts) if work else ""
        solved = str(len(attendee.solved))
        made.append((attendee.name, attendee.page, solved, name, attempts, minutes))
    return made


def sentences(board: Board, *, names: bool) -> list[str]:
    """What an instructor wants to know first, and what is wrong with the room's folder.

    `names` lists who is stuck, and the files that are damaged, for the instructor's own screen.
    """
    lines = [f"The room cannot be read now: {board.problem}."] if board.problem else []
    for stuck in board.stuck:
        people = f" ({', '.join(stuck.people)})" if names else ""
        lines.append(
            f"Stuck at {stuck.exercise}: {len(stuck.people)}{people}. "
            f"{stuck.times} of {len(stuck.people)} got this advice: {stuck.advice or 'none'}"
        )
    damaged = board.corrupt if names else []
    return lines + [f"This file is damaged, and was skipped: {name}." for name in damaged]


def table(board: Board, now: float | None = None) -> Table:
    """The board for a terminal."""
    shown = Table(caption=f"{len(board.attendees)} in the room", caption_justify="left")
    for heading in HEADINGS:
        shown.add_column(heading, overflow="fold")  # an exercise's name is not cut off
    for row in rows(board, time.time() if now is None else now):
        shown.add_row(*row)
    return shown


STYLE = """
body { font: 1.4rem/1.5 system-ui, sans-serif; margin: 2rem; color-scheme: light dark }
table { border-collapse: collapse }
th, td { text-align: left; padding: 0.2em 1em 0.2em 0; border-bottom: 1px solid }
"""


def projected(board: Board, seconds: float, now: float | None = None) -> str:
    """The board as a page to project, which loads itself again after so many seconds.

    Nobody's attempts are on it.
    """
    body = "".join(f"<p>{html.escape(words)}</p>\n" for words in sentences(board, names=False))
    lines = [cells("th", HEADINGS[:TO_ALL])]
    lines += [cells("td", row[:TO_ALL]) for row in rows(board, time.time() if now is None else now)]
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="refresh" content="{max(1, round(seconds))}">\n'
        f"<title>The room</title>\n<style>{STYLE}</style>\n<h1>The room</h1>\n{body}"
        f"<table>\n{chr(10).join(lines)}\n</table>\n</html>\n"
    )


def cells(tag: str, texts: Sequence[str]) -> str:
    """A row of a table in HTML."""
    return f"<tr>{''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in texts)}</tr>"


def watch(folder: Path, page: Path | None, every: float, once: bool) -> int:
    """Show the board every `every` seconds until an interrupt, or once; return the exit code.

    `page` is written at each look. A folder that vanishes is said to be gone, with the last view
    below, and is looked for again. Raises WorkbookError if the page cannot be written.
    """
    console = Console()
    latest = look(folder, page, every, Board())
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


def look(folder: Path, page: Path | None, every: float, before: Board) -> Board:
    """The board now; if it cannot be read, what was seen before, with the problem."""
    board = read_board(folder)
    if board.problem:
        board.attendees = before.attendees
    if page is not None:
        try:
            write_whole(page.absolute(), projected(board, every))
        except OSError as error:
            raise WorkbookError(f"{page} cannot be written: {error.strerror}.") from None
    return board


def shown(board: Board) -> Group:
    """The table, and the sentences above it."""
    return Group(*map(escape, sentences(board, names=True)), table(board))
