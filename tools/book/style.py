"""The book's style sheet: book.css, and the colours that are computed from those of the ranks."""

from pathlib import Path
from urllib.parse import quote

from pygments.formatters import HtmlFormatter

from ddp_workbook.page.code_diff import CodeStyle
from manyranks.rank_colours import RANK_COLOURS, contrast, for_text, rgb

STATIC = Path(__file__).parent / "static"
PAPER = {"light": "#ffffff", "dark": "#12161b"}  # what text stands on, as in book.css
ENOUGH = 5.2  # contrast of small text, also on a panel; WCAG wants 4.5
STRIPES = (
    '<svg class="stripes" viewBox="0 0 16 16" width="20" height="20" aria-hidden="true">'
    + "".join(
        f'<rect x="{left}" y="{1 + 4 * n}" width="{width}" height="2.6" rx="1.3" fill="{colour}"/>'
        for n, (left, width, colour) in enumerate(
            zip((0, 0, 0, 0), (16, 12, 14, 9), RANK_COLOURS, strict=False)
        )
    )
    + "</svg>"
)
ICON = "data:image/svg+xml," + quote(
    STRIPES.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
)


def style_sheet() -> str:
    """All rules of the book."""
    text = (STATIC / "book.css").read_text(encoding="utf-8")
    code = HtmlFormatter(style=CodeStyle).get_style_defs(".highlight")
    rules = [line for line in code.splitlines() if line.startswith(".highlight .")]
    light, dark = (rank_rules(theme) for theme in PAPER)
    return (
        f"{text}\n" + "\n".join(rules) + f"\n{light}"
        f"@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n"
    )


def rank_rules(theme: str) -> str:
    """The names of ranks in outputs, and the ranks' own colours for text and for bars."""
    rules = ""
    for rank, colour in enumerate(RANK_COLOURS):
        text = readable(for_text(colour), PAPER[theme])
        printed = ",".join(map(str, rgb(for_text(colour))))
        rules += (
            f'.jp-OutputArea-output span[style*="rgb({printed})"] '
            f"{{ color: {text} !important }}\n"
            f".rank{rank} {{ --rank: {colour}; --rank-text: {text} }}\n"
        )
    return rules


def readable(colour: str, paper: str) -> str:
    """The colour, mixed with black or white until small text in it can be read on `paper`."""
    end = 0 if contrast(paper, "#000000") > contrast(paper, "#ffffff") else 255
    mixes = (
        "#" + "".join(f"{round(part + share / 100 * (end - part)):02x}" for part in rgb(colour))
        for share in range(101)
    )
    return next(mix for mix in mixes if contrast(mix, paper) >= ENOUGH)
