"""What the room's folder says: who is there, who has solved what, who is stuck, what is guessed."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddp_workbook.page.questions import Answer, Question, all_questions
from ddp_workbook.page.room_client.attendee_news import (
    MAX_NEWS_BYTES,
    Attendee,
    ExerciseProgress,
    one_line,
    parse_news,
)
from manyranks.errors import WorkbookError

STUCK_AFTER_ATTEMPTS = 3  # attempts that did not pass, after which somebody counts as stuck
STUCK_AFTER_S = 10 * 60  # seconds since the first attempt, after which they do, too
GONE_AFTER_S = 30 * 60  # seconds without an attempt, after which they have gone on
ABSENT_AFTER_S = 6 * 3600  # seconds without a sign, after which somebody is not in the room today


@dataclass(frozen=True)
class Stuck:
    """An exercise with those who are stuck at it.

    `advice` is what most of them were told last, `times` how many; "" if no advice is the
    commonest.
    """

    exercise: str
    people: list[str]
    advice: str
    times: int


@dataclass(frozen=True)
class Spread:
    """How many guessed what: (answer, how many said so first, how many say so now).

    The choices in their order, also those that nobody made; numbers from the smallest on.
    """

    question: Question
    counts: list[tuple[Answer, int, int]]

    @property
    def people(self) -> int:
        """How many have guessed."""
        return sum(now for _, _, now in self.counts)

    @property
    def changed(self) -> bool:
        """Whether the spread is another than the first one."""
        return any(first != now for _, first, now in self.counts)


@dataclass
class Board:
    """Who is there, in the order of their names, and what could not be read.

    `now` is when the folder was read; `earlier` are those who gave no sign today. `problem` says
    why the folder cannot be read, `page_problem` why the page to project cannot be written.
    """

    now: float = 0.0
    attendees: list[Attendee] = field(default_factory=list)
    earlier: list[Attendee] = field(default_factory=list)
    corrupt: list[str] = field(default_factory=list)
    problem: str = ""
    page_problem: str = ""

    def solved(self) -> list[tuple[str, int]]:
        """(exercise, how many have solved it), in the order in which the room began them today."""
        began: dict[str, float] = {}
        count: Counter[str] = Counter()
        for _, name, work in self.news():
            count[name] += work.state == "solved"
            if self.now - work.time < ABSENT_AFTER_S:
                began[name] = min(work.began, began.get(name, work.began))
        return [(name, count[name]) for name in sorted(began, key=lambda name: began[name])]

    def spreads(self) -> list[Spread]:
        """What was guessed today, in the order in which the room came to the questions."""
        known = all_questions()
        began: dict[str, float] = {}
        guesses: dict[str, list[tuple[Answer, Answer]]] = {}
        for attendee in self.attendees:
            for name, guess in attendee.guesses.items():
                if name in known and self.now - guess.time < ABSENT_AFTER_S:
                    with contextlib.suppress(WorkbookError):  # from a page with other choices
                        both = known[name].answer(guess.first), known[name].answer(guess.now)
                        guesses.setdefault(name, []).append(both)
                        began[name] = min(guess.time, began.get(name, guess.time))
        return [spread(known[name], guesses[name]) for name in sorted(began, key=began.__getitem__)]

    def stuck(self) -> list[Stuck]:
        """Exercises at which somebody is stuck, those with most people first."""
        advice_by_exercise: dict[str, list[tuple[str, str]]] = {}
        for person, name, work in self.news():
            if self.is_stuck(work):
                advice_by_exercise.setdefault(name, []).append((person, work.advice))
        rows = [
            Stuck(
                name, [person for person, _ in people], *commonest([words for _, words in people])
            )
            for name, people in advice_by_exercise.items()
        ]
        return sorted(rows, key=lambda row: (-len(row.people), row.exercise))

    def is_stuck(self, work: ExerciseProgress) -> bool:
        """After many attempts, or a long time, unless they have gone on to something else."""
        if work.state == "solved" or self.now - work.time > GONE_AFTER_S:
            return False
        return work.attempts >= STUCK_AFTER_ATTEMPTS or self.now - work.began > STUCK_AFTER_S

    def news(self) -> Iterator[tuple[str, str, ExerciseProgress]]:
        """(who, exercise, progress) of all who are there."""
        for attendee in self.attendees:
            for name, work in attendee.exercises.items():
                yield attendee.name, name, work


def spread(question: Question, guesses: list[tuple[Answer, Answer]]) -> Spread:
    """The counts of these guesses, first and now."""
    first = Counter(before for before, _ in guesses)
    now = Counter(later for _, later in guesses)
    answers: list[Answer] = list(question.letters) or sorted({*first, *now}, key=float)
    return Spread(question, [(answer, first[answer], now[answer]) for answer in answers])


def commonest(advice: list[str]) -> tuple[str, int]:
    """The advice that most got, and how many; ("", 0) if another one is as common."""
    counts = Counter(words for words in advice if words).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return "", 0
    return counts[0]


def read_board(folder: Path, now: float | None = None) -> Board:
    """Read every file of the folder; one that cannot be used is named, and the others are shown."""
    board = Board(time.time() if now is None else now)
    if not folder.is_dir():
        board.problem = f"{folder} is {'not a folder' if folder.exists() else 'not there'}"
        return board
    try:
        files = sorted(folder.glob("*.json"))
    except OSError as error:  # such as no descriptor that is free
        board.problem = f"{folder} cannot be listed: {error.strerror}"
        return board
    attendees = []
    for path in files:
        if path.name.startswith("."):
            continue  # half-written: its writer renames it
        try:
            attendees.append(read_attendee(path))
        except FileNotFoundError:
            continue  # its owner has just left
        except (OSError, ValueError):
            board.corrupt.append(one_line(path.name))  # everybody may write into a shared folder
    for attendee in number_same_names(attendees):
        here = board.now - attendee.time < ABSENT_AFTER_S
        (board.attendees if here else board.earlier).append(attendee)
    return board


def number_same_names(attendees: list[Attendee]) -> list[Attendee]:
    """In the order of their names; of several with one name, who joined later gets a number."""
    counts: Counter[str] = Counter()
    numbered_attendees = []
    for attendee in sorted(
        attendees, key=lambda attendee: (attendee.name.casefold(), attendee.since)
    ):
        counts[attendee.name] += 1
        count = counts[attendee.name]
        number = f" ({count})" if count > 1 else ""
        numbered_attendees.append(replace(attendee, name=attendee.name + number))
    return numbered_attendees


def read_attendee(path: Path) -> Attendee:
    """One file, in times of the clock that stamped it. Raises OSError or ValueError."""
    with path.open("rb") as file:
        return parse_news(file.read(MAX_NEWS_BYTES + 1)).by_the_clock(path.stat().st_mtime)


def remove(folder: Path, name: str) -> int:
    """Take everybody who has chosen this name out of the room; return how many they were."""
    count = 0
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            if read_attendee(path).name == name:
                path.unlink()
                count += 1
    return count
