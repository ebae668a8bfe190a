"""What a reader is told after running an exercise's cell."""

import html
from dataclasses import dataclass, field
from typing import Any

from manyranks.wrapping import wrap

SOLVED, NOT_YET, NOT_ATTEMPTED = "solved", "not yet", "not attempted"
UNDECIDED = "undecided"  # the machine was too busy to tell
COLOURS = {  # contrast 3 : 1 in both themes
    SOLVED: "#00999a",
    NOT_YET: "#cc8200",
    NOT_ATTEMPTED: "#74687b",
    UNDECIDED: "#74687b",
}
MAX_ROW_CHARS = 700  # characters of one row
MAX_LINES = 30  # of the attempt's output that are shown
MAX_LINE_CHARS = 200  # characters of one of them
BOX_STYLE = "border-left:4px solid {colour}; padding:0.1em 0.9em; margin:0.3em 0; max-width:60em"
TITLE_STYLE = "font-weight:600"
GRID_STYLE = (
    "display:grid; grid-template-columns:max-content minmax(0,1fr); gap:0.2em 1em; "
    "align-items:baseline"
)
LABEL_STYLE = "opacity:0.75"
TEXT_STYLE = (
    "margin:0; padding:0; background:transparent; white-space:pre-wrap; word-break:normal; "
    "overflow-wrap:anywhere; line-height:1.4"
)
FOLD_STYLE = "margin:0.4em 0"


@dataclass
class Verdict:
    """A title, labelled rows, and what the attempt printed. `kind` is one of the words above."""

    kind: str
    title: str
    rows: list[tuple[str, str]] = field(default_factory=list)
    printed: str = ""
    help: str = ""  # HTML below the verdict, on a page only

    def __post_init__(self) -> None:
        self.rows = [(label, shorten(str(text).strip())) for label, text in self.rows]
        self.printed = last_lines(self.printed)

    def __repr__(self) -> str:
        width = max((len(label) for label, _ in self.rows), default=0)
        margin = "\n" + " " * (width + 4)
        rows = [f"  {label:<{width}}  {text}".replace("\n", margin) for label, text in self.rows]
        printed = ["  printed:", *(f"    {line}" for line in self.printed.splitlines())]
        return "\n".join([self.title, *rows, *(printed if self.printed else [])])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print as IPython does in a terminal."""
        printer.text(wrap(repr(self)))

    def _repr_html_(self) -> str:
        title = f'<div style="{TITLE_STYLE}">{html.escape(self.title)}</div>'
        parts = "".join(
            f'<div style="{LABEL_STYLE}">{html.escape(label)}</div>'
            f'<pre style="{TEXT_STYLE}">{html.escape(text)}</pre>'
            for label, text in self.rows
        )
        grid = f'<div style="{GRID_STYLE}">{parts}</div>' if parts else ""
        printed = (
            f'<details style="{FOLD_STYLE}"><summary>What your cell printed</summary>'
            f'<pre style="{TEXT_STYLE}">{html.escape(self.printed)}</pre></details>'
        )
        box = BOX_STYLE.format(colour=COLOURS[self.kind])
        body = title + grid + (printed if self.printed else "") + self.help
        return f'<div role="status" style="{box}">{body}</div>'


def shorten(text: str) -> str:
    """`text`, without its middle if it is too long for a page."""
    if len(text) <= MAX_ROW_CHARS:
        return text
    return f"{text[: MAX_ROW_CHARS * 2 // 3]} … {text[-MAX_ROW_CHARS // 3 :]}"


def last_lines(text: str) -> str:
    """The last lines of the output, and how many are left out."""
    lines = [
        line
        if len(line) <= MAX_LINE_CHARS
        else f"{line[:MAX_LINE_CHARS]} … ({len(line):,} characters)"
        for line in text.rstrip().split("\n")
    ]
    left_out = len(lines) - MAX_LINES
    if left_out <= 0:
        return "\n".join(lines)
    return "\n".join([f"… {left_out:,} lines before these", *lines[-MAX_LINES:]])
