"""What pages show besides pictures: the values of all ranks side by side, and text tables."""

from __future__ import annotations

import html
import io
import math
import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from manyranks.rank_colours import rank_colour

if TYPE_CHECKING:
    from IPython.core.formatters import DisplayFormatter
    from rich.console import JustifyMethod

ROW = "display:flex; flex-wrap:wrap; gap:0.6em 1.4em; margin:0.3em 0"
BOX = "border-left:4px solid {colour}; padding-left:0.6em; max-width:100%; overflow-x:auto"
MAX_COLUMNS = 20
NAME = "font-weight:600; font-size:90%"
TEXT = "margin:0.15em 0 0 0; padding:0; background:transparent; line-height:1.35"


def show_frames(formatter: DisplayFormatter) -> None:
    """Let a kernel show data frames as `frame_as_html` does."""
    formatter.formatters["text/html"].for_type(pd.DataFrame, frame_as_html)


def frame_as_html(frame: pd.DataFrame) -> str | None:
    """A frame as `text_table` shows it, with its index as columns unless it only counts.

    One that is long, wide, or has several rows of headers looks as pandas itself shows it.
    """
    shown = frame
    if not (isinstance(frame.index, pd.RangeIndex) and frame.index.name is None):
        names = ["" if name is None else name for name in frame.index.names]
        shown = frame.rename_axis(index=names).reset_index(allow_duplicates=True)
    is_long = len(frame) > (pd.get_option("display.max_rows") or len(frame))
    is_wide = frame.shape[1] > (pd.get_option("display.max_columns") or MAX_COLUMNS)
    is_odd = shown.columns.nlevels > 1 or not shown.columns.is_unique
    if is_long or is_wide or is_odd:
        table = frame._repr_html_()
    else:
        table = text_table(shown, markup=False).to_html()
    return table and without_empty_headers(table)


def without_empty_headers(table: str) -> str:
    """This HTML with plain cells in their place."""
    return re.sub(r"<th[^>]*>\s*(&nbsp;)?\s*</th>", "<td></td>", table)


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
        for name, column in self.data.items():
            side: JustifyMethod = "right" if holds_numbers(column) else "left"
            table.add_column(Text(str(name)), overflow="fold", justify=side)
        for row in self.data.itertuples(index=False):
            table.add_row(*(Text(readable(value)) for value in row))  # as a page shows it
        lines = io.StringIO()
        width = shutil.get_terminal_size((100, 24)).columns
        # In a kernel, rich would show the table itself, above the one that the page shows
        Console(file=lines, width=width, force_jupyter=False).print(table)
        text = f"{self.caption}\n\n{lines.getvalue()}" if self.caption else lines.getvalue()
        return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def text_table(frame: pd.DataFrame, caption: str = "", *, markup: bool = True) -> TextTable:
    """The frame as a table to read in a notebook: long cells wrapped, numbers readable, no index.

    Its texts may be HTML, unless `markup` is False. Screen readers stumble over an empty header
    cell, which an index would have.
    """
    cell = [("text-align", "left"), ("white-space", "normal"), ("vertical-align", "top")]
    numbers = [f"col{n}" for n in range(frame.shape[1]) if holds_numbers(frame.iloc[:, n])]
    styles: list[Any] = [{"selector": "th, td", "props": cell}]
    styles += [{"selector": f".{name}", "props": [("text-align", "right")]} for name in numbers]
    table = TextTable(frame, cell_ids=False).hide(axis="index")
    table = table.format(readable if markup else _escaped).set_table_styles(styles)
    table = table if markup else table.format_index(_escaped, axis="columns")
    return table.set_caption(caption) if caption else table


def holds_numbers(column: pd.Series) -> bool:
    """Whether a column is one of numbers: they are compared digit by digit, from the right."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _escaped(value: Any) -> str:
    return html.escape(readable(value))


def readable(value: Any) -> str:
    """A cell's text: 1,234,567 and 0.0123, three digits of a fraction; "" for what is missing."""
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isnan(number):
            return ""
        if math.isinf(number) or 0 < abs(number) < 1e-4:
            return f"{number:.3g}"
        digits = max(0, 2 - math.floor(math.log10(abs(number)))) if number else 0
        text = f"{number:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None or value is pd.NA else str(value)
