"""The book's table of contents: on its first page, and at the side of every other."""

import html
from itertools import groupby

from ddp_workbook.notebook.pages import in_order
from tools.book.look import CONTENTS, PAGE, SCRIPT, rank_names
from tools.book.search import FORM

NAME = "The Distributed PyTorch Workbook"


def listed(titles: dict[str, str], here: str = "") -> str:
    """All pages as a list of links; further pages stand below their chapter's."""
    items = ""
    for _, stems in groupby(sorted(titles, key=in_order), key=lambda stem: stem[:2]):
        links = [link(stem, titles[stem], stem == here) for stem in stems]
        further = "".join(f"<li>{one}</li>\n" for one in links[1:])
        items += f"<li>{links[0]}" + (f"\n<ul>\n{further}</ul>" if further else "") + "</li>\n"
    return f"<ul>\n{items}</ul>"


def link(stem: str, title: str, here: bool) -> str:
    """A page's link; the one that is open says so."""
    current = ' aria-current="page"' if here else ""
    return f'<a href="{stem}.html"{current}>{html.escape(title)}</a>'


def with_contents(page: str, titles: dict[str, str], stem: str) -> str:
    """The page of a notebook with the contents and a search field at its side."""
    side = (
        f'<nav class="book-contents" aria-label="Contents"><a href="index.html">{NAME}</a>\n'
        f'{FORM}<details class="book-pages"><summary>All pages</summary>\n'
        f"{listed(titles, stem)}</details></nav>\n<script>{SCRIPT}</script>\n"
    )
    start = page.index(">", page.index("<body ")) + 1
    page = f"{page[:start]}\n{side}{page[start:]}"
    return page.replace("</head>", f"<style>{CONTENTS}{PAGE}{rank_names()}</style>\n</head>", 1)


def index(titles: dict[str, str]) -> str:
    """The first page: all others, and the search."""
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{NAME}</title>\n<style>{CONTENTS}\n"
        "body { max-width: 40rem; margin: 3rem auto; padding: 0 1rem }</style></head>\n"
        f'<body><main class="book-contents">\n<h1>{NAME}</h1>\n{FORM}{listed(titles)}'
        "</main>\n</body>\n</html>\n"
    )
