"""The board as an instructor sees it in a terminal, and as a page to project."""

import html
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from ddp_workbook.page.room_client.attendee_news import Attendee
from ddp_workbook.workshop.room.board import Board, Spread, read_board
from manyranks.errors import WorkbookError
from manyranks.files import write_atomically

LATEST_COUNT = (
    3  # questions in a terminal; exercises on a projector, below the answers to a question
)
AWAY_AFTER_MINUTES = 10  # minutes without a cell
HEADINGS = ("who", "page", "solved", "working on", "attempts", "minutes ago")
MAX_BARS, MAX_STUCK = 8, 3  # on a projector with 720 lines: the latest; where most are stuck
MAX_GUESSES = 6  # different numbers
WIDTH = 20  # characters of a bar in a terminal
Bar = tuple[int, int, str]  # how many, of how many, in words


@dataclass(frozen=True)
class Invitation:
    """What attendees need to join a room that is served."""

    address: str
    code: str

    def line(self) -> str:
        """What they type in a page."""
        return f'join("{self.address}", "{self.code}", "a name")'


def rows(board: Board) -> list[tuple[str, ...]]:
    """A row for each attendee, in the order of HEADINGS."""
    return [row(attendee, board.now) for attendee in board.attendees]


def row(attendee: Attendee, now: float) -> tuple[str, ...]:
    """One attendee; the last column counts from the last cell that ran."""
    name, work = attendee.open or ("", None)
    since = minutes_since(attendee, now)
    minutes = f"{since:.0f}{' (away?)' if since > AWAY_AFTER_MINUTES else ''}"
    attempts = str(work.attempts) if work else ""
    return attendee.name, attendee.page, str(len(attendee.solved)), name, attempts, minutes


def minutes_since(attendee: Attendee, now: float) -> float:
    """Minutes since their last cell; 0 for a clock that is behind."""
    return max(0.0, now - attendee.time) / 60


def people(count: int) -> str:
    """So many people, in words."""
    return "1 person" if count == 1 else f"{count} people"


def sentences(board: Board, *, names: bool) -> list[str]:
    """Where people are stuck, and what is wrong with the room's folder.

    `names` lists who is stuck, and the files that are damaged, for the instructor's own screen.
    """
    lines = [f"The room cannot be read now: {board.problem}."] if board.problem else []
    if board.page_problem and names:
        lines.append(f"The page to project is not up to date: {board.page_problem}.")
    for stuck in board.stuck():
        who = f" ({', '.join(stuck.people)})" if names else ""
        count = len(stuck.people)
        advice = f"{stuck.times} of {count} got this advice: {stuck.advice}"
        if not stuck.times:
            advice = "No advice is the commonest."
        lines.append(f"Stuck at {stuck.exercise}: {people(count)}{who}. {advice}")
    corrupt = board.corrupt if names else []
    return lines + [f"This file is damaged or cannot be read: {name}." for name in corrupt]


def table(board: Board) -> Table:
    """Who is where, for a terminal."""
    earlier = f"; {people(len(board.earlier))} from an earlier day" if board.earlier else ""
    caption = f"{len(board.attendees)} in the room{earlier}"
    grid = Table(caption=caption, caption_justify="left")
    for heading in HEADINGS:
        grid.add_column(heading, overflow="fold")  # an exercise's name is not cut off
    for cells in rows(board):
        grid.add_row(*map(escape, cells))
    return grid


def solved_bars(board: Board) -> list[Bar]:
    """How many have solved each exercise."""
    there = len(board.attendees)
    return [
        (count, there, f"{count} of {there} have solved {name}") for name, count in board.solved()
    ]


def guess_bars(spread: Spread) -> list[Bar]:
    """How many gave each answer that is shown; of many numbers, the commonest."""
    counts = spread.counts
    if not spread.question.choices:
        counts = sorted(sorted(counts, key=lambda row: -row[2])[:MAX_GUESSES])
    bars = []
    for answer, first, now in counts:
        letter = f"{answer}: " if spread.question.choices else ""
        before = f" (at first {first})" if spread.changed else ""
        words = f"{now}{before}  {letter}{spread.question.words(answer)}"
        bars.append((now, spread.people, words))
    if rest := spread.people - sum(count for count, _, _ in bars):
        bars.append((rest, spread.people, f"{rest}  other numbers"))
    return bars


def bar_lines(board: Board) -> list[str]:
    """For a terminal: the latest questions with their guesses, and how much is solved."""

    def bar_text(bar: Bar) -> str:
        count, most, words = bar
        full = round(WIDTH * count / max(1, most))
        return f"{'█' * full}{'░' * (WIDTH - full)} {words}"

    lines = []
    for spread in board.spreads()[-LATEST_COUNT:]:
        lines.append(f"{people(spread.people)} guessed: {spread.question.ask}")
        lines += map(bar_text, guess_bars(spread))
    return [*lines, *map(bar_text, solved_bars(board))]


def terminal_view(board: Board, invitation: Invitation | None = None, warning: str = "") -> Group:
    """All of it: how to join, who guessed and solved what, who is stuck, who is where."""
    how_to_join = [f"To join, in any page: {invitation.line()}"] if invitation else []
    warnings = [warning] if warning else []
    lines = [*how_to_join, *bar_lines(board), *sentences(board, names=True), *warnings]
    return Group(*map(escape, lines), table(board))


STYLE = """
body { font: 1.25rem/1.35 system-ui, sans-serif; margin: 1rem 2rem; color-scheme: light dark }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.35rem; margin: 0.5rem 0 }
p, ul { margin: 0.5rem 0; padding: 0 }
code { font-size: 1.6rem }
.bars { list-style: none } .bars meter { width: 24rem; height: 1.2rem; margin-right: 1rem }
.names { columns: 4; font-size: 1rem; list-style: none }
"""


def projector_page(
    board: Board,
    seconds: float,
    invitation: Invitation | None = None,
    names: bool = False,
) -> str:
    """The board as a page to project, which loads itself again after so many seconds.

    Nobody's attempts are on it, and nobody's name unless `names` are wanted; of the guesses, how
    many made which for the latest question, and not which is right. At 1280 by 720, twenty people,
    their latest exercises and that question fit without scrolling.
    """
    parts = [f"<h1>The room: {people(len(board.attendees))}</h1>"]
    if invitation:
        parts.append(
            "<p>To join, in any page: <code>from ddp_workbook import join</code><br>"
            f"<code>{html.escape(invitation.line())}</code></p>"
        )
    answers = 0
    for spread in board.spreads()[-1:]:
        parts.append(f"<h2>{html.escape(spread.question.ask)}</h2>")
        bars = guess_bars(spread)
        parts.append(bar_list(bars))
        answers = len(bars)
    parts.append(bar_list(solved_bars(board)[-max(LATEST_COUNT, MAX_BARS - answers) :]))
    stuck = sentences(board, names=False)
    parts += [f"<p>{html.escape(words)}</p>" for words in stuck[:MAX_STUCK]]
    if names:
        items = "".join(f"<li>{html.escape(attendee.name)}</li>" for attendee in board.attendees)
        parts.append(f'<ul class="names">{items}</ul>')
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="refresh" content="{max(1, round(seconds))}">\n'
        f"<title>The room</title>\n<style>{STYLE}</style>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</html>\n"
    )


def bar_list(bars: Sequence[Bar]) -> str:
    """The bars as a list."""
    lines = (
        f'<li><meter min="0" max="{max(1, most)}" value="{count}" aria-hidden="true"></meter>'
        f"{html.escape(words)}</li>"
        for count, most, words in bars
    )
    return f'<ul class="bars">{"".join(lines)}</ul>'


@dataclass
class View:
    """Where the board of a folder is shown: in the terminal, and on a page if one is named.

    `warning` is asked for what the instructor should know besides.
    """

    folder: Path
    page: Path | None = None
    every: float = 5.0
    invitation: Invitation | None = None
    names: bool = False
    warning: Callable[[], str] = str
    page_was_written: bool = field(default=False, init=False)

    def watch(self, once: bool = False) -> int:
        """Show the board until an interrupt, or once; return the exit code.

        A folder that vanishes is said to be gone, with the last view below, and is looked for
        again. The terminal keeps what was printed, so a long table can be scrolled; nothing is
        printed while nothing changes. Raises WorkbookError if the page cannot be written at first;
        later on, that is said beside the board.
        """
        console, before, last_news = Console(), Board(), None
        try:
            while True:
                board, warning = self.look(before), self.warning()
                lines = bar_lines(board), sentences(board, names=True)
                news = [self.invitation, lines, places(board), warning]
                if news != last_news:
                    if not once:
                        console.rule(time.strftime("%H:%M:%S"))
                    console.print(terminal_view(board, self.invitation, warning))
                    last_news = news
                if once:
                    return int(bool(board.problem))
                before = board
                time.sleep(self.every)
        except KeyboardInterrupt:
            return 0

    def look(self, before: Board) -> Board:
        """The board now; if it cannot be read, what was seen before, with the problem."""
        board = read_board(self.folder)
        if board.problem:
            board.attendees, board.earlier = before.attendees, before.earlier
        if self.page is not None:
            text = projector_page(board, self.every, self.invitation, self.names)
            try:
                self.write_page(self.page.absolute(), text)
            except OSError as error:
                problem = f"{self.page} cannot be written: {error.strerror}"
                if not self.page_was_written:
                    raise WorkbookError(f"{problem}.") from None
                board.page_problem = problem
        return board

    def write_page(self, page: Path, text: str) -> None:
        """Write the page; a new one with the room's code is readable for this account alone."""
        if self.invitation and not page.exists():
            page.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        write_atomically(page, text)
        self.page_was_written = True


def places(board: Board) -> list[tuple]:
    """The rows without the minutes, which change by themselves, but with who may be away."""
    return [
        (*row(attendee, board.now)[:-1], minutes_since(attendee, board.now) > AWAY_AFTER_MINUTES)
        for attendee in board.attendees
    ]
