"""Pictures that every reader can use: one style, always an alt text, the same bytes on every run.

A picture is dark ink on a white card, on a light page and on a dark one. Text is drawn as outlines,
so it looks the same whichever fonts are installed.
"""

import base64
import contextlib
import html
import io
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from manyranks.figures.palette import FAINT, INK
from manyranks.files import write_atomically

WIDTH = 8.4  # inches; 806 CSS pixels, which JupyterLab's page has room for
STYLE = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so every machine has it
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "hatch.linewidth": 0.8,
    "hatch.color": "white",
    "lines.linewidth": 1.8,
    "lines.markersize": 7,
    "legend.frameon": False,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "svg.hashsalt": "ddp-workbook",  # else the ids inside differ in every run
    "svg.fonttype": "path",
}
FillStyle = dict[str, Any]  # matplotlib's names for how an area is filled
DRAWING = threading.RLock()
# In a dark theme the card is dark and the ink light; the second step gives the hues back. In a
# narrow window a picture shrinks, inside a widget as well.
PAGE_STYLE = (
    "<style>[data-jp-theme-light=false] .ddpw-picture,.vscode-dark .ddpw-picture"
    "{filter:invert(.93) hue-rotate(180deg)}"
    ".ddpw-picture{max-width:100%;height:auto}"
    ".widget-html:has(.ddpw-picture),.widget-html:has(.ddpw-picture) .widget-html-content"
    "{min-width:0;width:100%}</style>"
)


class Picture:
    """A figure that says what it shows: HTML `<img>` with alt text in a notebook, else that text.

    `alt` is made of the values that are drawn, for readers who cannot see them. `width` is in CSS
    pixels, by default the figure's own. What draws it may add to `figure` and `alt` until it is
    shown. Raises ValueError without an alt text.
    """

    def __init__(self, figure: Figure, alt: str, width: int | None = None):
        if not alt.strip():
            raise ValueError("A picture needs an alt text.")
        self.figure, self.alt = figure, alt.strip()
        self.width = round(width or figure.get_figwidth() * 96)
        # No cached_property: in Python 3.11 all of them share a lock, and drawing has one as well.
        self._svg: str | None = None

    @property
    def axes(self) -> Axes:
        """The figure's first panel; `figure.axes` has all of them."""
        return self.figure.axes[0]

    def update_legend(self, ncols: int = 4) -> None:
        """Make the legend anew: what it named before, and all in the panels that has a label."""
        handles: dict[str, Any] = {}
        for old in self.figure.legends:
            words = (text.get_text() for text in old.texts)
            handles |= dict(zip(words, old.legend_handles, strict=True))
            old.remove()
        for axes in self.figure.axes:
            for key, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, key)
        self.figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=ncols)

    @property
    def svg(self) -> str:
        """The picture as a file, with title and description; equal figures give equal text."""
        if self._svg is None:
            self._svg = self._render_svg()
        return self._svg

    def _render_svg(self) -> str:
        buffer = io.StringIO()
        with style():
            self.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        if "matplotlib.pyplot" in sys.modules:  # else the inline backend shows it again
            sys.modules["matplotlib.pyplot"].close(self.figure)
        return _with_description(buffer.getvalue(), self.alt)

    def save(self, path: str | Path) -> Path:
        """Write it as SVG, atomically."""
        return write_atomically(Path(path), self.svg)

    def _repr_html_(self) -> str:
        # IPython.display.Image(alt=...) loses the alt text in JupyterLab; an <img> keeps it.
        data = base64.b64encode(self.svg.encode()).decode()
        return (
            f'{PAGE_STYLE}<img class="ddpw-picture" alt="{html.escape(self.alt)}" '
            f'width="{self.width}" src="data:image/svg+xml;base64,{data}">'
        )

    def __repr__(self) -> str:
        return self.alt


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The workbook's matplotlib settings: `with style(): ...`, or `@style()` above a function.

    The settings are one set for the whole process, so one thread draws at a time.
    """
    with DRAWING, matplotlib.rc_context(STYLE):
        yield


def label_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a horizontal chart, the first one on top."""
    axes.set_yticks(range(len(names)), [_wrapped(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def name_looks(figure: Figure, looks: Mapping[str, FillStyle]) -> None:
    """A legend of areas above the panels, in one line if it fits."""
    keys = [Patch(label=words, **look) for words, look in looks.items()]
    columns = 6 if sum(len(words) + 4 for words in looks) < 80 else 3
    figure.legend(handles=keys, handlelength=1.6, loc="outside upper left", ncols=columns)


def beside(axes: Axes, row: float, words: str, **text: Any) -> None:
    """Write `words` to the right of the panel, at the height of a row: no bar covers them there."""
    place = {"transform": axes.get_yaxis_transform(), "va": "center"}
    axes.text(1.02, row, words, **place | text)


def number(value: float) -> str:
    """Three significant digits and no exponent: 0.08, 1.53, 15.3, 153, 15,300; "none" for nan."""
    if value != value:
        return "none"
    return f"{value:,.0f}" if abs(value) >= 100 or value == 0 else f"{value:.3g}"


def _with_description(svg: str, alt: str) -> str:
    title = alt.split(". ")[0].rstrip(".")
    start = svg.index("<svg ")
    end = svg.index(">", start)
    return (
        svg[:start]
        + '<svg role="img" aria-labelledby="title desc" '
        + svg[start + 5 : end + 1]
        + f'\n <title id="title">{html.escape(title)}</title>'
        + f'\n <desc id="desc">{html.escape(alt)}</desc>'
        + svg[end + 1 :]
    )


def _wrapped(name: str) -> str:
    return "\n".join(textwrap.fill(line, 24) for line in str(name).splitlines())
