"""Reports that fit the width of a page or terminal: lines end between words."""

import re
import shutil
import textwrap

WIDTH = 80  # columns of a report on a page
LABEL = re.compile(r" *(?:\S+(?: \S+)? {2,})?")  # such as "  look at   ", or what indents a line
FRAME = re.compile(r" *File \"")  # a traceback's; the line of code below it stays whole


def wrap(text: str, width: int | None = None) -> str:
    """`text` with lines of at most `width` columns, by default those of the terminal or a page.

    What is too long goes on below the line's first word, or the first one after its label. Lines
    of code in a traceback are left as they are, and so are words longer than a line.
    """
    width = width or max(40, shutil.get_terminal_size((WIDTH, 24)).columns)
    lines, is_code = [], False
    for line in text.split("\n"):
        label = LABEL.match(line)
        indent = " " * min(len(label.group()) if label else 0, width // 2)
        fits = len(line) <= width or is_code
        lines += (
            [line]
            if fits
            else textwrap.wrap(
                line,
                width,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
                drop_whitespace=True,
            )
        )
        is_code = bool(FRAME.match(line))
    return "\n".join(lines)
