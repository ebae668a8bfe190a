"""The book's table of contents: on its first page, and at the side of every other."""

import html
import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import groupby

import nbformat

from ddp_workbook.page import pages
from tools.book.look import CONTENTS, PAGE, SCRIPT, rank_names
from tools.book.search import FORM
from tools.set_up import ROOT

NAME = "The Distributed PyTorch Workbook"


@dataclass(frozen=True)
class About:
    """What the first page says of a page: its minutes, a sentence, and who ran it when."""

    minutes: str
    sentence: str
    date: str
    machine: str


def about(stem: str, notebook: nbformat.NotebookNode) -> About:
    """What is known of an executed page; "" for what is not."""
    record = notebook.metadata.get("book", {})
    when = record.get("date", "")
    day = f"{date.fromisoformat(when):%-d %B %Y}" if when else ""
    return About(pages.minutes(notebook), sentences().get(stem, ""), day, record.get("machine", ""))


@cache
def sentences() -> dict[str, str]:
    """By page: what the tables of README.md and notebooks/further/README.md say about it."""
    tables = (ROOT / "README.md", ROOT / "notebooks/further/README.md")
    rows = re.findall(
        r"(?m)^\| \d\d \| \[.*?\]\((?:notebooks/)?(\w+)\.ipynb\) \| .*? \| (.*) \|$",
        "\n".join(path.read_text(encoding="utf-8") for path in tables),
    )
    return {stem: sentence for stem, sentence in rows}


def page_list(titles: dict[str, str], here: str = "", known: dict[str, About] | None = None) -> str:
    """All pages as a list of links; further pages stand below their chapter's.

    With `known`, each has its minutes and its sentence.
    """
    items = ""
    for _, stems in groupby(sorted(titles, key=pages.in_order), key=lambda stem: stem[:2]):
        links = [
            link(stem, titles[stem], stem == here) + (words(known[stem]) if known else "")
            for stem in stems
        ]
        further = "".join(f"<li>{entry}</li>\n" for entry in links[1:])
        items += f"<li>{links[0]}" + (f"\n<ul>\n{further}</ul>" if further else "") + "</li>\n"
    return f"<ul>\n{items}</ul>"


def link(stem: str, title: str, here: bool) -> str:
    """A page's link; the one that is open says so."""
    current = ' aria-current="page"' if here else ""
    return f'<a href="{stem}.html"{current}>{html.escape(title)}</a>'


def words(known: About) -> str:
    """The minutes and the sentence below a page's link."""
    sentence = re.sub(r"`(.*?)`", r"<code>\1</code>", html.escape(known.sentence))
    sentence = sentence[:1].upper() + sentence[1:]
    return f"<br>\n<small>{'. '.join(part for part in (known.minutes, sentence) if part)}</small>"


def run_notes(known: dict[str, About]) -> str:
    """When and on which machine the pages were run: a paragraph for each day and machine."""
    runs: dict[tuple[str, str], list[str]] = {}
    for stem, about_page in known.items():
        if about_page.date:
            runs.setdefault((about_page.date, about_page.machine), []).append(stem)
    several = len(runs) > 1
    return "".join(
        f"<p><small>Run on {day}, on {html.escape(machine)}"
        f"{': ' + ', '.join(stems) if several else ''}.</small></p>\n"
        for (day, machine), stems in runs.items()
    )


def with_contents(page: str, titles: dict[str, str], stem: str) -> str:
    """The page of a notebook with the contents and a search field at its side."""
    side = (
        f'<nav class="book-contents" aria-label="Contents"><a href="index.html">{NAME}</a>\n'
        f'{FORM}<details class="book-pages"><summary>All pages</summary>\n'
        f"{page_list(titles, stem)}</details></nav>\n<script>{SCRIPT}</script>\n"
    )
    start = page.index(">", page.index("<body ")) + 1
    page = f"{page[:start]}\n{side}{page[start:]}"
    return page.replace("</head>", f"<style>{CONTENTS}{PAGE}{rank_names()}</style>\n</head>", 1)


def index(titles: dict[str, str], known: dict[str, About]) -> str:
    """The first page: all others with their minutes, the search, and when the pages were run."""
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{NAME}</title>\n<style>{CONTENTS}\n"
        "body { max-width: 40rem; margin: 3rem auto; padding: 0 1rem }</style></head>\n"
        f'<body><main class="book-contents">\n<h1>{NAME}</h1>\n{FORM}'
        "<p><small>Minutes are those for teaching, plus those for exercises.</small></p>\n"
        f"{page_list(titles, known=known)}\n{run_notes(known)}</main>\n</body>\n</html>\n"
    )
