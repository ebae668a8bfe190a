"""What pages show besides pictures: the values of all ranks side by side, and text tables."""

from __future__ import annotations

import html
import io
import shutil
from typing import TYPE_CHECKING

import pandas as pd
from pandas.io.formats.style import Styler

from manyranks.rank_colours import rank_colour

if TYPE_CHECKING:
    from IPython.core.formatters import DisplayFormatter

ROW = "display:flex; flex-wrap:wrap; gap:0.6em 1.4em; margin:0.3em 0"
BOX = "border-left:4px solid {colour}; padding-left:0.6em; max-width:100%; overflow-x:auto"
NAME = "font-weight:600; font-size:90%"
TEXT = "margin:0.15em 0 0 0; padding:0; background:transparent; line-height:1.35"


def show_frames(formatter: DisplayFormatter) -> None:
    """Let a kernel show data frames as `frame_as_html` does."""
    formatter.formatters["text/html"].for_type(pd.DataFrame, frame_as_html)


def frame_as_html(frame: pd.DataFrame) -> str | None:
    """pandas' own table, without headers that are empty: screen readers stumble over them."""
    table = frame._repr_html_()
    return table and without_empty_headers(table)


def without_empty_headers(table: str) -> str:
    """This HTML with plain cells in their place."""
    return table.replace("<th></th>", "<td></td>")


class RankValues:
    """One value for each rank, as `run_cell` returned it: by MIME type, or None."""

    def __init__(self, values: list[dict[str, str] | None]):
        self.values = values

    def _repr_html_(self) -> str:
        boxes = "".join(self._box(rank, value) for rank, value in enumerate(self.values))
        # Not a <dl>: JupyterLab floats its parts.
        return f'<div role="list" style="{ROW}">{boxes}</div>'

    def _box(self, rank: int, value: dict[str, str] | None) -> str:
        value = value or {"text/plain": "None"}
        text = html.escape(value["text/plain"])
        body = value.get("text/html") or f'<pre style="{TEXT}">{text}</pre>'
        body = without_empty_headers(body)
        return (
            f'<div role="listitem" style="{BOX.format(colour=rank_colour(rank))}">'
            f'<div style="{NAME}">rank {rank}</div>{body}</div>'
        )

    def __repr__(self) -> str:
        texts = [value["text/plain"] if value else "None" for value in self.values]
        return "\n".join(
            f"rank {rank}: " + text.replace("\n", "\n" + " " * len(f"rank {rank}: "))
            for rank, text in enumerate(texts)
        )


class PlainText(str):
    """A sentence that a cell shows without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class TextTable(Styler):
    """What `text_table` returns: a table in a notebook, the same as lines in a terminal."""

    def __repr__(self) -> str:
        # A Styler's own is <pandas.io.formats.style.Styler object>, and pandas cuts long cells.
        from rich import box  # late: %load_ext does not wait for it
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in self.data.columns:
            table.add_column(Text(str(name)), overflow="fold")
        for row in self.data.itertuples(index=False):
            # As the table of a page shows it.
            cells = (f"{value:.6f}" if isinstance(value, float) else str(value) for value in row)
            table.add_row(*map(Text, cells))
        lines = io.StringIO()
        width = shutil.get_terminal_size((100, 24)).columns
        # In a kernel, rich would show the table itself, above the one that the page shows
        Console(file=lines, width=width, force_jupyter=False).print(table)
        return "\n".join(line.rstrip() for line in lines.getvalue().rstrip().splitlines())


def text_table(frame: pd.DataFrame) -> TextTable:
    """The frame as a table to read in a notebook: left-aligned, long cells wrapped, no index.

    Screen readers stumble over an empty header cell, which an index would have.
    """
    cell_style = {"text-align": "left", "white-space": "normal", "vertical-align": "top"}
    headers = [{"selector": "th", "props": [("text-align", "left")]}]
    table = TextTable(frame).hide(axis="index").set_properties(**cell_style)
    return table.set_table_styles(headers)
