"""`ddp-workbook grade --certificates`: a page to print for each attendee, with what they solved."""

import html
import re
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import count
from pathlib import Path

from ddp_workbook.page import pages
from manyranks.errors import WorkbookError

WORKSHOP = "The Distributed PyTorch Workbook"
MAX_NAME_LENGTH = 50  # characters of a name that a file's name keeps
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{name}: {workshop}</title>
<style>
@page {{ size: A4; margin: 25mm }}
body {{ font: 12pt/1.6 system-ui, sans-serif; max-width: 36rem; margin: 3rem auto; color: #000 }}
h1 {{ font-size: 28pt; overflow-wrap: anywhere }}
.signature {{ margin-top: 4rem; border-top: 1px solid; width: 16rem }}
</style></head>
<body>
<p>{workshop}</p>
<h1>{name}</h1>
<p>has solved {number}. Each solution was checked on real processes.</p>
<ul>
{solved}
</ul>
<p>{day}</p>
<p class="signature">Instructor</p>
</body>
</html>
"""


def certificate(name: str, solved: Sequence[str], workshop: str, day: date) -> str:
    """The page as HTML. `solved` are names of exercises, in their order."""
    titles = {exercise: pages.title(pages.load(pages.page_of(exercise))) for exercise in solved}
    items = "\n".join(
        f"<li>{html.escape(titles[exercise])}: {html.escape(exercise)}</li>" for exercise in solved
    )
    return PAGE.format(
        name=html.escape(name),
        workshop=html.escape(workshop),
        number=f"{len(solved)} exercise{'s' if len(solved) > 1 else ''}",
        solved=items,
        day=f"{day.day} {day:%B %Y}",
    )


def write(folder: Path, solved: Mapping[str, Sequence[str]], workshop: str) -> list[Path]:
    """Write a certificate for each name with something solved; return the files.

    A file that is there already is kept: another one gets a number. Raises WorkbookError if the
    folder cannot be written.
    """
    today = date.today()
    texts = {name: certificate(name, own, workshop, today) for name, own in solved.items() if own}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_new_file(folder, safe(name), text) for name, text in texts.items()]
    except OSError as error:
        raise WorkbookError(
            f"Certificates cannot be written to {folder}: {error.strerror}."
        ) from None


def safe(name: str) -> str:
    """The name as a part of a file's name: letters, digits and _ of any language."""
    return re.sub(r"[^\w-]+", "_", name)[:MAX_NAME_LENGTH].strip("_") or "attendee"


def _new_file(folder: Path, name: str, text: str) -> Path:
    """A file with this text that was not there before, or that was there with the same text."""
    for number in count(1):
        path = folder / f"certificate_{name}{f'_{number}' if number > 1 else ''}.html"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            return path
        except FileExistsError:
            if path.is_file() and path.read_text(encoding="utf-8") == text:
                return path
    raise AssertionError("count has no end")
