"""The README's moving picture: a cell on four ranks, then one that hangs, and its report.

What it shows is a real run, kept in data/readme_run.json; `make figures ARGS=--record` runs the two
cells again. The picture is an SVG that moves by CSS: it needs no script, and stands still, with its
last scene, for people who have asked their system for less motion.
"""

import contextlib
import html
import json
import os
import tempfile
import textwrap
import time
from pathlib import Path

from manyranks.files import write_atomically
from tools.set_up import ROOT

RUN = ROOT / "data" / "readme_run.json"
RANKS, TIMEOUT_S = 4, 3  # ranks of both cells; seconds after which the second one is stopped
CELLS = {
    "sum": ("%%ranks 4", "x = torch.ones(1) * rank\ndist.all_reduce(x)\nx.item()"),
    "hang": (
        "%%ranks 4 --timeout 3",
        "import time\n"
        "x = torch.ones(1) * rank\n"
        "if rank == 3:\n"
        "    time.sleep(60)\n"
        "dist.all_reduce(x)",
    ),
}


def record(limit: float = TIMEOUT_S) -> dict:
    """Run both cells; what came back, the seconds, and the report of the one that hangs."""
    from ddp_workbook import RanksHung, launch
    from ddp_workbook.page.cells import save_cell
    from ddp_workbook.page.machine import machine_name

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        cells = {name: save_cell(*lines) for name, lines in CELLS.items()}
        launch(cells["sum"], ranks=RANKS)  # starts the fork server
        began = time.perf_counter()
        values = [value["text/plain"] for value in launch(cells["sum"], ranks=RANKS)]
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        try:
            launch(cells["hang"], ranks=RANKS, timeout=limit)
        except RanksHung as hang:
            report = str(hang).splitlines()
    return {
        "machine": machine_name(),
        "values": values,
        "seconds": round(seconds, 2),
        "report": [line.rstrip() for line in report],
        "hang_seconds": round(time.perf_counter() - began, 1),
    }


# The picture: one loop of LOOP seconds. All places are in pixels.

LOOP = 16.0
SUM_ENDS = 6.0  # seconds of the loop; then the second cell comes
WIDTH, HEIGHT, MARGIN, LINE = 860, 500, 24, 20
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
INK, QUIET, CARD, CELL_BACKGROUND = "#1f2328", "#59636e", "#ffffff", "#f4f4f4"
LANE_LEFT, LANE_RIGHT, LANE_TOP, LANE_STEP = 110, 600, 194, 26


class Drawing:
    """Pieces of the picture, and the animations that make each of them appear and vanish."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.styles: list[str] = []

    def add(self, piece: str, begin: float, end: float = LOOP) -> None:
        """Show the piece from `begin` to `end`, in seconds of the loop."""
        name = f"s{len(self.pieces)}"
        a, b = (100 * moment / LOOP for moment in (begin, end))
        last = "1" if end >= LOOP else "0"
        self.styles.append(
            f"@keyframes {name} {{ 0%, {max(a - 0.01, 0):.2f}% {{ opacity: 0 }} "
            f"{a:.2f}%, {max(b - 0.01, a):.2f}% {{ opacity: 1 }} {min(b, 100):.2f}%, 100% "
            f"{{ opacity: {last} }} }}\n"
            f"#{name} {{ animation: {name} {LOOP:g}s infinite; opacity: {last} }}"
        )
        self.pieces.append(f'<g id="{name}">{piece}</g>')

    def grow(self, piece: str, begin: float, full: float, end: float) -> None:
        """Show a bar that grows from its left from `begin` to `full`, and stays until `end`."""
        name = f"s{len(self.pieces)}"
        a, b, c = (100 * moment / LOOP for moment in (begin, full, end))
        last = "1" if end >= LOOP else "0"
        self.styles.append(
            f"@keyframes {name} {{ 0%, {a:.2f}% {{ transform: scaleX(0); opacity: 1 }} "
            f"{b:.2f}%, {c - 0.01:.2f}% {{ transform: scaleX(1); opacity: 1 }} "
            f"{c:.2f}%, 100% {{ transform: scaleX(1); opacity: {last} }} }}\n"
            f"#{name} {{ animation: {name} {LOOP:g}s linear infinite; transform-origin: "
            f"{LANE_LEFT}px 0; opacity: {last} }}"
        )
        self.pieces.append(f'<g id="{name}">{piece}</g>')


def text(x: float, y: float, words: str, colour: str = INK, *, bold: bool = False) -> str:
    """A line of text with its spaces kept."""
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{colour}"{weight}>{html.escape(words)}</text>'


def bar(rank: int, left: float, right: float, colour: str) -> str:
    """A piece of a rank's lane."""
    top = LANE_TOP + rank * LANE_STEP
    return (
        f'<rect x="{left:.0f}" y="{top}" width="{right - left:.0f}" height="16" rx="3" '
        f'fill="{colour}"/>'
    )


def cell(name: str) -> str:
    """The notebook's cell with its lines."""
    header, body = CELLS[name]
    lines = [header, *body.splitlines()]
    height = LINE * 6 + 12
    box = (
        f'<rect x="{MARGIN}" y="{MARGIN}" width="{WIDTH - 2 * MARGIN}" height="{height}" rx="4" '
        f'fill="{CELL_BACKGROUND}" stroke="#d0d7de"/>'
    )
    return box + "".join(
        text(MARGIN + 14, MARGIN + 22 + LINE * number, line, bold=number == 0)
        for number, line in enumerate(lines)
    )


def picture(run: dict) -> str:
    """The SVG of a recorded run."""
    from manyranks.figures.palette import tint
    from manyranks.rank_colours import for_text, rank_colour

    drawing = Drawing()
    span = LANE_RIGHT - LANE_LEFT
    for rank in range(RANKS):
        label = text(MARGIN + 14, LANE_TOP + 13 + rank * LANE_STEP, f"rank {rank}")
        drawing.add(label.replace(INK, for_text(rank_colour(rank))), 1.0)

    drawing.add(cell("sum"), 0.0, SUM_ENDS)
    below = LANE_TOP + RANKS * LANE_STEP + 24
    for rank in range(RANKS):
        piece = bar(rank, LANE_LEFT, LANE_RIGHT, tint(rank_colour(rank), 0.45))
        drawing.grow(piece, 1.0, 2.2, SUM_ENDS)
        value = text(
            LANE_RIGHT + 20, LANE_TOP + 13 + rank * LANE_STEP, f"x = {run['values'][rank]}"
        )
        drawing.add(value, 2.6, SUM_ENDS)
    meeting = LANE_LEFT + 0.8 * span
    line = (
        f'<line x1="{meeting:.0f}" x2="{meeting:.0f}" y1="{LANE_TOP - 6}" y2="{below - 22}" '
        f'stroke="{INK}" stroke-width="2"/>{text(meeting - 90, LANE_TOP - 12, "all_reduce")}'
    )
    drawing.add(line, 2.2, SUM_ENDS)
    words = f"four processes, started, met and ended in {run['seconds']:g} s"
    drawing.add(text(MARGIN + 14, below, words, QUIET), 3.0, SUM_ENDS)
    words = "No GPU, and nothing is simulated. In the next cell, one of them never comes."
    drawing.add(text(MARGIN + 14, below + LINE, words, QUIET), 4.0, SUM_ENDS)

    drawing.add(cell("hang"), SUM_ENDS)
    stop = SUM_ENDS + 1.0 + TIMEOUT_S
    for rank in range(RANKS):
        waits = rank != RANKS - 1
        piece = bar(rank, LANE_LEFT, LANE_RIGHT, tint(rank_colour(rank), 0.45 if waits else 0.9))
        drawing.grow(piece, SUM_ENDS + 1.0, stop, LOOP)
        state = "waits" if waits else "sleeps"
        drawing.add(text(LANE_RIGHT + 20, LANE_TOP + 13 + rank * LANE_STEP, state), SUM_ENDS + 1.4)
    limit = (
        f'<line x1="{LANE_RIGHT}" x2="{LANE_RIGHT}" y1="{LANE_TOP - 6}" y2="{below - 22}" '
        f'stroke="#c30c45" stroke-width="2"/>'
        f"{text(LANE_RIGHT - 190, LANE_TOP - 12, f'stopped after {TIMEOUT_S} s', '#c30c45')}"
    )
    drawing.add(limit, stop)
    for number, line in enumerate(wrap_report(run["report"])):
        drawing.add(text(MARGIN + 14, below + 4 + 19 * number, line), stop + 0.3)
    return svg(drawing, alt_text(run))


def wrap_report(report: list[str]) -> list[str]:
    """The report's lines, the long ones broken between words and indented."""
    return [part for line in report for part in textwrap.wrap(line, 92, subsequent_indent=" " * 6)]


def alt_text(run: dict) -> str:
    """The two scenes in words."""
    report = " ".join(" ".join(line.split()) for line in run["report"])
    return (
        f"A cell with %%ranks 4 runs in four processes, which add up their numbers in "
        f"{run['seconds']:g} s: each rank has {run['values'][0]}. In a second cell rank 3 sleeps "
        f"before the all_reduce; the others wait, and all are stopped after {TIMEOUT_S} s. "
        f"The report: {report}"
    )


def svg(drawing: Drawing, alt: str) -> str:
    """The file: title, styles, pieces."""
    styles = "\n".join(drawing.styles)
    pieces = "\n".join(drawing.pieces)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-labelledby="title desc">\n'
        f'<title id="title">A cell on four ranks, a hang and its report</title>\n'
        f'<desc id="desc">{html.escape(alt)}</desc>\n'
        f"<style>\ntext {{ font: 14px {FONT}; white-space: pre }}\n{styles}\n"
        "@media (prefers-reduced-motion: reduce) { g { animation: none !important } }\n</style>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{CARD}" stroke="#d0d7de"/>\n'
        f"{pieces}\n</svg>\n"
    )


def read_record() -> dict:
    """The run that was recorded last."""
    return json.loads(RUN.read_text(encoding="utf-8"))


def write_record() -> Path:
    """Run the cells again, and keep what they showed."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    return write_atomically(RUN, json.dumps(record(), indent=1, ensure_ascii=False) + "\n")
