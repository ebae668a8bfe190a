"""What a script needs that is not here, a GPU or Slurm, with the mend of each line that needs it.

The failing expression decides, not the words of the error: a shape error in `model(x).cuda()` is no
lack of a GPU.
"""

import re
from collections.abc import Sequence

from manyranks.diagnostics import advice
from manyranks.diagnostics.gpu_needs import Need, gpu_needs
from manyranks.diagnostics.launcher_needs import launcher_needs
from manyranks.diagnostics.source import DELETION, Edit, Source, apply_edits, read
from manyranks.diagnostics.user_code import short

MAX_ROWS = 12
MAX_LINE_CHARS = 52  # characters shown of a line
MAX_FIX_CHARS = 64  # characters of a fix that still stands beside the line
NO_GPU = (
    "There is no GPU for each rank here, so the ranks run on the CPU. What needs one in {file}:"
)
NO_LAUNCHER = (
    "These ranks were started as torchrun starts them, not by Slurm or MPI. What to change in "
    "{file}:"
)
ALSO = "And in {file}:"
# A call with the wrong arguments; a missing GPU gives other errors.
WRONG_CALL = re.compile(
    r"TypeError: .*(unexpected keyword|positional argument|multiple values"
    r"|invalid combination of arguments - got (?!\([^)]*NoneType))"
)


def suggest_edits(error: dict) -> list[str]:
    """The lines to change if something is missing; [] if the error has another cause.

    `error` is an exception as `exceptions.as_data` describes it.
    """
    try:
        return _look_at(error)
    except RecursionError:  # an expression that is nested too deeply to be read
        return []


def _look_at(error: dict) -> list[str]:
    if WRONG_CALL.match(error["reason"]):
        return []
    kinds = [(NO_LAUNCHER, launcher_needs)]
    if error["gpus"] == 0:
        kinds.append((NO_GPU, gpu_needs))
    sources = {place.file: read(place.file) for place in reversed(error["places"])}
    for place in error["places"]:
        source = sources[place.file]
        needs = [need for _, find in kinds for need in find(source)] if source else []
        nodes = source.at(place.span) if source else []
        if source and any(n.node in nodes and n.says.search(error["reason"]) for n in needs):
            beside = {file: read(file) for file in source.neighbours(place.file)}  # fail next
            return pages({place.file: source} | sources | beside, kinds)
    if advice.LACKS_GPU.search(error["reason"]) and error["gpus"] == 0:
        # A device that came from elsewhere: no line of this file shows who chose it.
        return pages(sources, kinds[1:]) or [advice.for_error(error["type"], error["reason"])]
    return []


def pages(sources: dict[str, Source | None], kinds: Sequence[tuple]) -> list[str]:
    """What each of these files needs."""
    lines = []
    for title, find in kinds:
        for file, source in sources.items():
            if source and (needs := find(source)):
                lines += page(title, file, source, needs)
                title = ALSO
    return lines


def page(title: str, file: str, source: Source, needs: Sequence[Need]) -> list[str]:
    """The title, and a row for each change with what to write instead."""
    edits = outermost([edit for need in needs for edit in need.edits])
    rows = [row(source.text, group) for group in by_lines(edits)]
    visible = rows[:MAX_ROWS]
    width = max(len(old) for _, old, _ in visible)
    number = max(len(place) for place, _, _ in visible)
    lines = [title.format(file=short(file))]
    for place, old, new in visible:
        if len(new) > MAX_FIX_CHARS:  # whole, on a line of its own: a part of it cannot be copied
            lines += [f"  {place:<{number}}   {old}", f"  {'':<{number}}   {new}"]
        else:
            lines.append(f"  {place:<{number}}   {old:<{width}}   {new}")
    more = len(rows) - MAX_ROWS
    return lines if more <= 0 else [*lines, f"  … and {more} more line{'s' * (more > 1)}"]


def outermost(edits: Sequence[Edit]) -> list[Edit]:
    """The edits without those inside another one, in the order of the file."""
    outer: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.span.start, [-n for n in e.span.end])):
        if not outer or edit.span.start >= outer[-1].span.end:
            outer.append(edit)
    return outer


def by_lines(edits: Sequence[Edit]) -> list[list[Edit]]:
    """The edits in groups; those of one group change the same lines."""
    groups: list[list[Edit]] = []
    for edit in edits:
        if groups and edit.span.line <= groups[-1][-1].span.end_line:
            groups[-1].append(edit)
        else:
            groups.append([edit])
    return groups


def row(text: str, edits: Sequence[Edit]) -> tuple[str, str, str]:
    """Which lines these edits change, how the lines begin, and what to do with them."""
    first, last = edits[0].span.line, edits[-1].span.end_line
    place = f"line {first}" if first == last else f"lines {first} to {last}"
    lines = text.split("\n")
    new_lines = apply_edits(text, edits).split("\n")
    new = " ".join(map(str.strip, new_lines[first - 1 : len(new_lines) - len(lines) + last]))
    deleted = new.partition("#")[0].strip() == DELETION
    fix = ("delete it" if first == last else "delete them") if deleted else f"write {new}"
    words = next((edit.words for edit in edits if edit.words), fix)
    return place, shortened(" ".join(map(str.strip, lines[first - 1 : last]))), words


def shortened(line: str) -> str:
    """At most WIDEST characters of a line."""
    return line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 1] + "…"
