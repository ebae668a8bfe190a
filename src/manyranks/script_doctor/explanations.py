"""`doctor --explain`: what a rule's finding means, an example and its fix, from a file of texts.

It imports no torch: an explanation is there as soon as Python has started.
"""

import difflib
import textwrap
import tomllib
from dataclasses import dataclass
from importlib.resources import files

from manyranks.errors import WorkbookError

WIDTH = 80
INDENT = "    "  # of code
LISTS = ("all", "list")  # words that mean no rule, but all of them


class UnknownRule(WorkbookError, ValueError):
    """There is no rule of this name; the text lists those that there are."""


@dataclass(frozen=True)
class Explanation:
    """What is said of one rule; explanations.toml says what the fields hold."""

    rule: str
    summary: str
    meaning: str
    example: str
    fix: str
    page: str

    def __str__(self) -> str:
        parts = [
            wrapped(f"{self.rule}: {self.summary}"),
            wrapped(self.meaning),
            "For example:",
            textwrap.indent(self.example.strip("\n"), INDENT),
            "Instead:",
            textwrap.indent(self.fix.strip("\n"), INDENT),
            wrapped(f"See page {self.page} of the workbook."),
        ]
        return "\n\n".join(parts)


def explain(rule: str) -> str:
    """The explanation of a rule, or a line for each rule if it is "all" or "list".

    Raises UnknownRule.
    """
    explanations = all_explanations()
    if rule in LISTS:
        return "\n".join(f"{one.rule:<29}{one.summary}" for one in explanations.values())
    if rule in explanations:
        return str(explanations[rule])
    near = difflib.get_close_matches(rule, explanations, 1)
    guess = f" Did you mean {near[0]}?" if near else ""
    raise UnknownRule(
        wrapped(f"There is no rule {rule!r}.{guess} There are: {', '.join(explanations)}.")
    )


def all_explanations() -> dict[str, Explanation]:
    """Each rule's explanation, by the rule's name."""
    text = files(__package__).joinpath("explanations.toml").read_text(encoding="utf-8")
    return {rule: Explanation(rule, **fields) for rule, fields in tomllib.loads(text).items()}


def wrapped(text: str) -> str:
    """The text in lines that end between words, so that the name of a rule stays whole."""
    return textwrap.fill(" ".join(text.split()), WIDTH, break_on_hyphens=False)
