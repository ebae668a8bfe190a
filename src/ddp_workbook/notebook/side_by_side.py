"""The HTML of a comparison: a table that reads the same in JupyterLab's light and dark themes."""

import difflib
import re
from html import escape

from ddp_workbook.notebook.alignment import Row, blocks, equal_lines
from ddp_workbook.notebook.listing import Line

MINUS = "\N{MINUS SIGN}"  # as wide as the plus
# Blue and orange at low opacity: told apart with any colour vision, legible on light and dark.
STYLE = """<style>
table.ddpw-diff.ddpw-diff { border-collapse: collapse; table-layout: fixed; width: 100%;
  color: var(--jp-content-font-color1, inherit); font-size: 12px;
  font-family: var(--jp-code-font-family, monospace); line-height: 1.4; }
table.ddpw-diff.ddpw-diff caption { caption-side: top; text-align: left; padding: 4px 0;
  color: inherit; font-family: var(--jp-content-font-family, sans-serif); }
table.ddpw-diff.ddpw-diff tr { background: none; border: none; }
table.ddpw-diff.ddpw-diff th, table.ddpw-diff.ddpw-diff td { border: none; text-align: left;
  vertical-align: top; padding: 0 6px; max-width: none; color: inherit; }
table.ddpw-diff.ddpw-diff thead th { padding: 4px 6px; font-weight: bold;
  border-bottom: 1px solid var(--jp-border-color1, #888); }
table.ddpw-diff.ddpw-diff .number { text-align: right; width: 2.6em; white-space: nowrap; }
table.ddpw-diff.ddpw-diff td.code { white-space: pre-wrap; overflow-wrap: anywhere;
  padding-left: calc(var(--margin) + 5ch); text-indent: calc(-1 * var(--margin) - 4ch); }
table.ddpw-diff.ddpw-diff .new { border-left: 1px solid var(--jp-border-color1, #888); }
table.ddpw-diff.ddpw-diff .removed { background: rgba(213, 94, 0, .14); }
table.ddpw-diff.ddpw-diff .added { background: rgba(0, 114, 178, .16); }
table.ddpw-diff.ddpw-diff .absent { background: rgba(128, 128, 128, .1); }
table.ddpw-diff del, table.ddpw-diff ins { color: inherit; font-weight: bold; border-radius: 2px;
  text-decoration: underline; text-underline-offset: 3px; }
table.ddpw-diff del { background: rgba(213, 94, 0, .3); }
table.ddpw-diff ins { background: rgba(0, 114, 178, .32); }
table.ddpw-diff.ddpw-diff td.gap { text-align: center; font-style: italic; padding: 2px; }
</style>"""


def page(rows: list[Row], names: tuple[str, str], summary: str) -> str:
    """The table of all rows, with runs of equal ones left out."""
    old, new = map(escape, names)
    body = (
        f'<tr><td class="gap" colspan="4">{equal_lines(block)}</td></tr>'
        if isinstance(block, int)
        else "\n".join(map(as_html, block))
        for block in blocks(rows)
    )
    return "\n".join(
        [
            STYLE,
            '<table class="ddpw-diff">',
            f"<caption>{escape(summary)}. {MINUS} marks an old line, + a new one.</caption>",
            f'<thead><tr><th scope="col" class="number">line</th><th scope="col">{old}</th>',
            f'<th scope="col" class="number new">line</th><th scope="col">{new}</th></tr></thead>',
            "<tbody>",
            *body,
            "</tbody></table>",
        ]
    )


def as_html(row: Row) -> str:
    """A row of the table: number and code of the old line, then of the new one."""
    old, new = marked_words(row)
    kinds = ("equal", "equal") if row.equal else ("removed", "added")
    return f"<tr>{cells(row.old, old, kinds[0], 'old')}{cells(row.new, new, kinds[1], 'new')}</tr>"


def cells(line: Line | None, code: str, kind: str, side: str) -> str:
    """The two cells of one side."""
    if line is None:
        return f'<td class="number {side} absent"></td><td class="code absent"></td>'
    mark = {"equal": " ", "removed": MINUS, "added": "+"}[kind]
    margin = len(line.text) - len(line.text.lstrip())  # where a wrapped line goes on
    return (
        f'<td class="number {side} {kind}">{line.number}</td>'
        f'<td class="code {kind}" style="--margin: {margin}ch">{mark} {code}</td>'
    )


def marked_words(row: Row) -> tuple[str, str]:
    """The HTML of both lines, with the words that differ in <del> and <ins>."""
    old, new = (line.text if line else "" for line in (row.old, row.new))
    if row.equal or not (row.old and row.new):
        return escape(old), escape(new)
    words = [re.findall(r"\w+|\s+|.", text) for text in (old, new)]
    sides = ["", ""]
    matcher = difflib.SequenceMatcher(None, *words, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        for side, (name, begin, end) in enumerate((("del", a, b), ("ins", c, d))):
            text = escape("".join(words[side][begin:end]))
            sides[side] += f"<{name}>{text}</{name}>" if tag != "equal" and text else text
    return sides[0], sides[1]
