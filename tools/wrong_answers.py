"""Reads tests/wrong_answers/<name>.py: cells that are wrong in a way that is no edit of the table.

    # %% only rank 0 calls the collective
    # told: has returned without it
    # right at: 1
    def mean_over_ranks(value):
        ...

Each begins with `# %%` and what is wrong. `# told:` are words that the verdict must contain (with
several lines, all of them), `# right at:` world sizes at which it is right all the same. Each cell
has the imports of the solution besides its own. In the place of a cell there may be an `edit(...)`
of the solution, or a `body(...)`, as in an exercise's table of mistakes.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ddp_workbook.judging import body, edit
from ddp_workbook.judging.catalogue import Exercise

FOLDER = Path(__file__).parents[1] / "tests" / "wrong_answers"
HEAD = re.compile(r"^# (told|right at): (.*)\n", re.M)


@dataclass(frozen=True)
class WrongAnswer:
    """One cell, and what its verdict must be."""

    name: str  # of the exercise
    wrong: str
    cell: str
    expected_words: tuple[str, ...]
    right_at: frozenset[int] = frozenset()

    @property
    def slug(self) -> str:
        """`wrong` as a test's name."""
        return "_".join(re.findall(r"\w+", self.wrong))[:60]


def wrong_answers(exercise: Exercise) -> list[WrongAnswer]:
    """Those in its file; [] if there is none."""
    path = FOLDER / f"{exercise.name}.py"
    return read(path.read_text(encoding="utf-8"), exercise) if path.exists() else []


def read(text: str, exercise: Exercise) -> list[WrongAnswer]:
    """The cells of a file's text. Raises ValueError if one is an edit that cannot be made."""
    _, *parts = re.split(r"^# %% ", text, flags=re.M)
    return [_wrong_answer(part, exercise) for part in parts]


def _wrong_answer(part: str, exercise: Exercise) -> WrongAnswer:
    wrong, _, rest = part.partition("\n")
    pairs = [(key, value) for key, value in HEAD.findall(rest)]
    code = HEAD.sub("", rest).strip("\n") + "\n"
    sizes = [int(size) for key, value in pairs if key == "right at" for size in value.split(",")]
    return WrongAnswer(
        exercise.name,
        wrong,
        cell_of(code, exercise),
        tuple(value for key, value in pairs if key == "told"),
        frozenset(sizes),
    )


def cell_of(code: str, exercise: Exercise) -> str:
    """The whole cell: with the solution's imports, or the solution with an edit."""
    if re.match(r"(edit|body)\(", code):
        return eval(code, {"edit": edit, "body": body}).apply(exercise.solution)
    imports = exercise.solution.partition("\n\n\n")[0]
    gap = "\n" if re.match(r"(import|from) ", code) else "\n\n\n"
    return f"{imports}{gap}{code}"
