"""The instructor's view of a room: who is where, and at which exercise most are stuck."""

import html
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

LARGEST = 1 << 16  # bytes of an attendee's file
AWAY = 10  # minutes without news
MANY = 3  # attempts that did not pass, after which somebody counts as stuck


@dataclass(frozen=True)
class Work:
    """An attendee's news about one exercise."""

    state: str
    attempts: int
    advice: str
    time: float


@dataclass(frozen=True)
class Attendee:
    """What one file of the room says."""

    name: str
    page: str
    time: float
    exercises: dict[str, Work]

    @property
    def solved(self) -> list[str]:
        """The exercises that are solved."""
        return [name for name, work in self.exercises.items() if work.state == "solved"]

    @property
    def open(self) -> tuple[str, Work] | None:
        """The exercise that was tried last, if it is not solved."""
        latest = max(self.exercises.items(), key=lambda one: one[1].time, default=None)
        return latest if latest and latest[1].state != "solved" else None


@dataclass(frozen=True)
class Stuck:
    """An exercise with those who are stuck at it, and the advice that most of them got."""

    exercise: str
    people: list[str]
    advice: str
    times: int


@dataclass
class Room:
    """All attendees in the order of their names, and the files that could not be read."""

    attendees: list[Attendee] = field(default_factory=list)
    corrupt: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def stuck(self) -> list[Stuck]:
        """Exercises at which somebody is stuck, those with most people first."""
        found: dict[str, list[tuple[str, str]]] = {}
        for one in self.attendees:
            for name, work in one.exercises.items():
                if work.state != "solved" and work.attempts >= MANY:
                    found.setdefault(name, []).append((one.name, work.advice))
        rows = []
        for name, people in found.items():
            advice, times = Counter(words for _, words in people).most_common(1)[0]
            rows.append(Stuck(name, [who for who, _ in people], advice, times))
        return sorted(rows, key=lambda row: (-len(row.people), row.exercise))


def read_room(folder: Path) -> Room:
    """Read every file of the room; one that is damaged is named, and the others are shown."""
    room = Room()
    if not folder.is_dir():
        room.problem = f"{folder} is {'not a folder' if folder.exists() else 'not there'}"
        return room
    for path in sorted(folder.glob("*.json")):
        if path.name.startswith("."):
            continue  # half-written: its writer renames it
        try:
            room.attendees.append(attendee(path))
        except FileNotFoundError:
            continue  # its owner has just left
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            room.corrupt.append(path.name)
    return with_own_names(room)


def attendee(path: Path) -> Attendee:
    """One file. Raises ValueError, TypeError, KeyError or AttributeError if it is damaged."""
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path.name} has more than {LARGEST:,} bytes")
    told = json.loads(path.read_text(encoding="utf-8"))
    exercises = {
        str(name): Work(
            str(news["state"]), int(news["attempts"]), str(news["advice"]), float(news["time"])
        )
        for name, news in told["exercises"].items()
    }
    return Attendee(str(told["name"]), str(told["page"]), float(told["time"]), exercises)


def with_own_names(room: Room) -> Room:
    """The room with a number behind a name that two attendees have chosen, in a fixed order."""
    seen: Counter[str] = Counter()
    named = []
    for one in room.attendees:
        seen[one.name] += 1
        number = f" ({seen[one.name]})" if seen[one.name] > 1 else ""
        named.append(Attendee(one.name + number, one.page, one.time, one.exercises))
    room.attendees = sorted(named, key=lambda one: one.name.casefold())
    return room


HEADINGS = ("who", "page", "solved", "working on", "attempts", "minutes ago")
TO_ALL = 3  # the first columns may be projected: the others show who is stuck


def rows(room: Room, now: float) -> list[tuple[str, ...]]:
    """A row for each attendee, in the order of HEADINGS."""
    made = []
    for one in room.attendees:
        name, work = one.open or ("", None)
        since = max(0.0, now - one.time) / 60  # clocks differ
        away = " (away?)" if since > AWAY else ""
        attempts = str(work.attempts) if work else ""
        made.append(
            (one.name, one.page, str(len(one.solved)), name, attempts, f"{since:.0f}{away}")
        )
    return made


def sentences(room: Room, *, names: bool) -> list[str]:
    """What an instructor wants to know first, and what is wrong with the room.

    `names` lists who is stuck, and the files that are damaged, for the instructor's own screen.
    """
    told = [f"The room cannot be read now: {room.problem}."] if room.problem else []
    told += [
        f"Stuck at {one.exercise}: {len(one.people)}{listed(one.people) * names}. "
        f"{one.times} of {len(one.people)} got this advice: {one.advice or 'none'}"
        for one in room.stuck
    ]
    damaged = room.corrupt if names else []
    return told + [f"This file is damaged, and was skipped: {name}." for name in damaged]


def listed(people: Sequence[str]) -> str:
    """The names in brackets."""
    return f" ({', '.join(people)})"


def table(room: Room, now: float | None = None) -> Table:
    """The room for a terminal."""
    shown = Table(caption=f"{len(room.attendees)} in the room", caption_justify="left")
    for heading in HEADINGS:
        shown.add_column(heading, overflow="fold")  # an exercise's name is not cut off
    for row in rows(room, time.time() if now is None else now):
        shown.add_row(*row)
    return shown


STYLE = """
body { font: 1.4rem/1.5 system-ui, sans-serif; margin: 2rem; color-scheme: light dark }
table { border-collapse: collapse }
th, td { text-align: left; padding: 0.2em 1em 0.2em 0; border-bottom: 1px solid }
"""


def page(room: Room, seconds: float, now: float | None = None) -> str:
    """The room as a page to project, which loads itself again after so many seconds.

    Nobody's attempts are on it.
    """
    body = "".join(f"<p>{html.escape(words)}</p>\n" for words in sentences(room, names=False))
    lines = [cells("th", HEADINGS[:TO_ALL])]
    lines += [cells("td", row[:TO_ALL]) for row in rows(room, time.time() if now is None else now)]
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="refresh" content="{max(1, round(seconds))}">\n'
        f"<title>The room</title>\n<style>{STYLE}</style>\n<h1>The room</h1>\n{body}"
        f"<table>\n{chr(10).join(lines)}\n</table>\n</html>\n"
    )


def cells(tag: str, texts: Sequence[str]) -> str:
    """A row of a table in HTML."""
    return f"<tr>{''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in texts)}</tr>"
