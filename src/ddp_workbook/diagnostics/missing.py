"""What a script needs that is not here, a GPU or Slurm, with the mend of each line that needs it.

The failing expression decides, not the words of the error: a shape error in `model(x).cuda()` is no
lack of a GPU.
"""

import itertools
from collections.abc import Sequence

from ddp_workbook.diagnostics import advice
from ddp_workbook.diagnostics.gpu_needs import Need, gpu_needs
from ddp_workbook.diagnostics.launcher_needs import launcher_needs
from ddp_workbook.diagnostics.source import DELETED, Edit, Source, Span, mended, read, read_at
from ddp_workbook.diagnostics.user_code import short

MOST_ROWS = 12
WIDEST = 52  # characters shown of a line
BEFORE = 16  # of them before a change, if the line is longer
NO_GPU = (
    "There is no GPU for each rank here, so the ranks run on the CPU. What needs one in {file}:"
)
NO_LAUNCHER = (
    "These ranks were started as torchrun starts them, not by Slurm or MPI. What to change in "
    "{file}:"
)
ALSO = "And in {file}:"


def look_at(error: dict) -> list[str]:
    """The lines to change if something is missing; [] if the error has another cause.

    `error` is an exception as `exceptions.as_data` describes it.
    """
    try:
        return _look_at(error)
    except RecursionError:  # an expression that is nested too deeply to be read
        return []


def _look_at(error: dict) -> list[str]:
    kinds = [(NO_LAUNCHER, launcher_needs)]
    kinds += [(NO_GPU, gpu_needs)] * (error["gpus"] == 0)
    sources = {place.file: read_at(place) for place in reversed(error["places"])}
    for place in error["places"]:
        source = sources[place.file]
        if source and fails_at(place.span, source, kinds, error["reason"]):
            return pages({place.file: source} | sources | beside(place.file, source), kinds)
    if advice.LACKS_GPU.search(error["reason"]) and error["gpus"] == 0:
        # A device that came from elsewhere: no line of this file shows who chose it.
        told = pages(sources, kinds[1:])
        return told or [advice.for_error(error["type"], error["reason"])]
    return []


def beside(file: str, source: Source) -> dict[str, Source | None]:
    """The files in the same folder that this one imports; their lines would fail next."""
    return {one: read(one) for one in source.neighbours(file)}


def pages(sources: dict[str, Source | None], kinds: Sequence[tuple]) -> list[str]:
    """What each of these files needs."""
    lines = []
    for title, find in kinds:
        for file, source in sources.items():
            if source and (needs := find(source)):
                lines += page(title, file, source, needs)
                title = ALSO
    return lines


def fails_at(span: Span, source: Source, kinds: Sequence[tuple], reason: str) -> bool:
    """True if the expression that failed is a need of one of these kinds."""
    nodes, needs = source.at(span), [need for _, find in kinds for need in find(source)]
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
    return lines if more <= 0 else [*lines, f"  … and {more} more line{'s' * (more > 1)}"]


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
