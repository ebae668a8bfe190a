"""What an attendee shares with the room: a small JSON object, checked before it is kept or shown.

It has a name that its owner chose, the page, for each exercise its state, the number of attempts
and the advice of the last verdict, and guesses: letters of choices, and numbers. There is no place
in it for an exercise's answer or a file.
"""

import json
import re
from dataclasses import asdict, dataclass, field, replace

MAX_NEWS_BYTES = 1 << 16  # bytes of an attendee's news
MAX_NAME_LENGTH = 40
MAX_WORD_LENGTH, MAX_ADVICE_LENGTH = 80, 1000
MAX_EXERCISES = 200
MAX_QUESTIONS = 400
GUESS = r"[a-z]|[\d.e+-]{1,24}"  # the letter of a choice, or a number
MAX_TIME_S = 1e11  # a time in seconds; later ones are no times


@dataclass(frozen=True)
class ExerciseProgress:
    """An attendee's news about one exercise; times in seconds since 1970."""

    state: str
    attempts: int
    advice: str
    time: float
    began: float


@dataclass(frozen=True)
class GuessNews:
    """An attendee's first guess and the one of now, and how often they chose; `time` as above."""

    first: str
    now: str
    chosen: int
    time: float


@dataclass(frozen=True)
class Attendee:
    """What somebody shares: `since` is when they joined, `time` when they last ran a cell.

    `sent` is what their clock showed as they sent it: it tells how wrong that clock is.
    """

    name: str
    page: str
    time: float
    exercises: dict[str, ExerciseProgress]
    since: float = 0.0
    sent: float = 0.0
    guesses: dict[str, GuessNews] = field(default_factory=dict)

    @property
    def solved(self) -> list[str]:
        """The exercises that are solved."""
        return [name for name, work in self.exercises.items() if work.state == "solved"]

    @property
    def open(self) -> tuple[str, ExerciseProgress] | None:
        """The exercise that was tried last, if it is not solved."""
        latest = max(self.exercises.items(), key=lambda item: item[1].time, default=None)
        return latest if latest and latest[1].state != "solved" else None

    def text(self) -> str:
        """As JSON, for a file or a request."""
        return json.dumps(asdict(self), indent=1)

    def by_the_clock(self, now: float) -> "Attendee":
        """The same in times of the clock that shows `now` at the moment at which it was sent."""
        seconds = now - self.sent if self.sent else 0.0
        exercises = {
            name: replace(work, time=work.time + seconds, began=work.began + seconds)
            for name, work in self.exercises.items()
        }
        guesses = {
            name: replace(guess, time=guess.time + seconds) for name, guess in self.guesses.items()
        }
        since, sent, latest = self.since + seconds, self.sent + seconds, self.time + seconds
        return Attendee(self.name, self.page, latest, exercises, since, sent, guesses)

    def with_news_of(self, before: "Attendee") -> "Attendee":
        """This, and of each exercise the news with more attempts, of each guess the later one.

        Two kernels of one attendee may send at once, and the older news may arrive last.
        """
        exercises = dict(before.exercises)
        for name, work in self.exercises.items():
            if name not in exercises or exercises[name].attempts <= work.attempts:
                exercises[name] = work
        guesses = dict(before.guesses)
        for name, guess in self.guesses.items():
            if name not in guesses or guesses[name].chosen <= guess.chosen:
                guesses[name] = guess
        return replace(self, exercises=exercises, guesses=guesses)


def clean_name(name: object) -> str:
    """A name as all see it, on one line; ValueError if it is empty or longer than 40 characters."""
    display_name = one_line(name)
    if not 0 < len(display_name) <= MAX_NAME_LENGTH:
        raise ValueError(f"a name has 1 to {MAX_NAME_LENGTH} letters, not {str(name)[:60]!r}")
    return display_name


def one_line(text: object) -> str:
    """The text as a terminal can show it: without line ends and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def parse_news(data: bytes) -> Attendee:
    """An attendee's news. Raises ValueError if anything in it is not as it should be."""
    if len(data) > MAX_NEWS_BYTES:
        raise ValueError(f"it has more than {MAX_NEWS_BYTES:,} bytes")
    try:
        news = json.loads(data.decode("utf-8"))
        exercises = {word(name): progress(value) for name, value in news["exercises"].items()}
        if len(exercises) > MAX_EXERCISES:
            raise ValueError(f"it has more than {MAX_EXERCISES} exercises")
        all_guesses = news.get("guesses", {}).items()  # a page of an older workbook sends none
        guesses = {word(name): parse_guess(value) for name, value in all_guesses}
        if len(guesses) > MAX_QUESTIONS:
            raise ValueError(f"it has guesses for more than {MAX_QUESTIONS} questions")
        since, sent = moment(news.get("since", 0.0)), moment(news.get("sent", 0.0))
        page = news["page"] and word(news["page"])
        return Attendee(
            clean_name(news["name"]), page, moment(news["time"]), exercises, since, sent, guesses
        )
    except (TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"it is not an attendee's news: {error}") from None


def progress(news: dict) -> ExerciseProgress:
    """The news about one exercise, checked."""
    attempts, state = news["attempts"], news["state"]
    if type(attempts) is not int or not 0 <= attempts <= 1_000_000:
        raise ValueError(f"{attempts!r} is no number of attempts")
    if state not in ("solved", "not yet"):
        raise ValueError(f"{state!r} is no state of an exercise")
    advice = one_line(news["advice"])[:MAX_ADVICE_LENGTH]
    return ExerciseProgress(
        state, attempts, advice, moment(news["time"]), moment(news.get("began", news["time"]))
    )


def parse_guess(news: dict) -> GuessNews:
    """The news about one guess, checked: letters and numbers only."""
    chosen, guesses = news["chosen"], (news["first"], news["now"])
    if type(chosen) is not int or not 0 < chosen <= 1_000_000:
        raise ValueError(f"{chosen!r} is no number of times")
    for guess in guesses:
        if not (isinstance(guess, str) and re.fullmatch(GUESS, guess)):
            raise ValueError(f"{str(guess)[:60]!r} is no guess")
    return GuessNews(*guesses, chosen, moment(news["time"]))


def word(text: object) -> str:
    """The name of an exercise or a page."""
    if not (isinstance(text, str) and re.fullmatch(rf"\w{{1,{MAX_WORD_LENGTH}}}", text)):
        raise ValueError(f"{str(text)[:60]!r} names no exercise and no page")
    return text


def moment(seconds: object) -> float:
    """A time, in seconds since 1970."""
    if not isinstance(seconds, int | float) or not abs(seconds) < MAX_TIME_S:  # false for nan, too
        raise ValueError(f"{str(seconds)[:60]!r} is no time")
    return float(seconds)
