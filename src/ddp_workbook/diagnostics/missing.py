"""What a script needs that is not here, a GPU or Slurm, with the mend of each line that needs it.

The failing expression decides, not the words of the error: a shape error in `model(x).cuda()` is no
lack of a GPU.
"""

import itertools
from collections.abc import Sequence

from ddp_workbook.diagnostics.gpu_needs import Need, gpu_needs
from ddp_workbook.diagnostics.launcher_needs import launcher_needs
from ddp_workbook.diagnostics.source import DELETED, Edit, Source, Span, mended, read
from ddp_workbook.diagnostics.user_code import short

MOST_ROWS = 12
WIDEST = 52  # characters shown of a line
BEFORE = 16  # of them before a change, if the line is longer
NO_GPU = (
    "There is no GPU for each rank here, so the ranks run on the CPU. These lines of {file} need "
    "one:"
)
NO_LAUNCHER = (
    "These ranks were started as torchrun starts them, not by Slurm or MPI. Change these lines of "
    "{file}:"
)


def look_at(error: dict) -> list[str]:
    """The lines to change if something is missing; [] if the error has another cause.

    `error` is an exception as `exceptions.as_data` describes it.
    """
    kinds = [(NO_LAUNCHER, launcher_needs)]
    kinds += [(NO_GPU, gpu_needs)] * (error["gpus"] == 0)
    sources = {place.file: read(place) for place in reversed(error["places"])}
    for place in error["places"]:
        if source := sources[place.file]:
            found = [(title, find(source)) for title, find in kinds]
            if any(fails_at(place.span, needs, source, error["reason"]) for _, needs in found):
                pages = [page(title, place.file, source, needs) for title, needs in found if needs]
                return list(itertools.chain.from_iterable(pages))
    return []


def fails_at(span: Span, needs: Sequence[Need], source: Source, reason: str) -> bool:
    """True if the expression that failed is one of these needs."""
    nodes = source.at(span)
    return any(need.node in nodes and need.says.search(reason) for need in needs)


def page(title: str, file: str, source: Source, needs: Sequence[Need]) -> list[str]:
    """The title, and a row for each line with what to write instead."""
    edits = outermost([edit for need in needs for edit in need.edits])
    by_line = itertools.groupby(edits, key=lambda edit: edit.span.line)
    rows = [(line, *old_and_new(source.text, line, list(these))) for line, these in by_line]
    width = max(len(old) for _, old, _ in rows[:MOST_ROWS])
    number = len(str(rows[-1][0]))
    lines = [title.format(file=short(file))]
    for line, old, new in rows[:MOST_ROWS]:
        lines.append(f"  line {line:<{number}}   {old:<{width}}   {new}")
    more = len(rows) - MOST_ROWS
    return lines if more <= 0 else [*lines, f"  … and {more} more lines"]


def outermost(edits: Sequence[Edit]) -> list[Edit]:
    """The edits without those inside another one, in the order of the file."""
    kept: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.span.start, [-n for n in e.span.end])):
        if not kept or edit.span.start >= kept[-1].span.end:
            kept.append(edit)
    return kept


def old_and_new(text: str, line: int, edits: Sequence[Edit]) -> tuple[str, str]:
    """A line as it is, and what to do with it; of a long line, the part that changes."""
    old = text.split("\n")[line - 1].strip()
    words = [edit.words for edit in edits if edit.words]
    if words:
        return shortened(old, 0), words[0]
    new = mended(text, edits).split("\n")[line - 1].strip()
    if new == DELETED:
        return shortened(old, 0), "delete it"
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    change = same if max(len(old), len(new)) > WIDEST else 0
    return shortened(old, change), f"write {shortened(new, change)}"


def shortened(line: str, change: int) -> str:
    """At most WIDEST characters of a line, with a little of what stands before the change."""
    if change > BEFORE:
        line = "…" + line[change - BEFORE :]
    return line if len(line) <= WIDEST else line[: WIDEST - 1] + "…"
