"""What stands around every page of the book: its head, contents, what comes next, and the foot."""

import html
import re
from dataclasses import dataclass
from datetime import date
from itertools import groupby

import nbformat

from ddp_workbook.page import pages
from tools.book.page import headings, question, title
from tools.book.search import FORM
from tools.book.site import DOCUMENTS, NAME, Site, edition
from tools.book.style import ICON, STRIPES

CSS, JS = "book.css", "book.js"
DOCUMENT_NAMES = {"tools": "The tools", "install": "Installation"}
# The lists of pages and of headings are unfolded where they stand at the sides. This runs before
# the page is painted; without JavaScript the reader unfolds them.
UNFOLD = """<script>
for (const [name, width] of [['book-pages', 80], ['on-this-page', 68]])
  for (const one of document.querySelectorAll(`details.${name}`))
    one.open = matchMedia(`(min-width: ${width}rem)`).matches;
</script>
"""


@dataclass(frozen=True)
class About:
    """What the book says of a page: its title, question and minutes, and who ran it when."""

    title: str
    question: str
    minutes: str
    day: str
    machine: str
    edition: str
    old: bool  # the present edition of the page did not run without errors


def about(notebook: nbformat.NotebookNode) -> About:
    """What is known of an executed page; "" for what is not."""
    record = notebook.metadata.get("book", {})
    when = record.get("date", "")
    return About(
        title(notebook),
        question(notebook),
        pages.minutes(notebook),
        f"{date.fromisoformat(when):%-d %B %Y}" if when else "",
        record.get("machine", ""),
        record.get("edition", ""),
        record.get("old", False),
    )


def in_code(text: str) -> str:
    """A line of Markdown as HTML, of which only code and links are used here; links are dropped."""
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    text = re.sub(r"`(.*?)`", r"<code>\1</code>", html.escape(text, quote=False))
    return re.sub(r"\*\*?(.+?)\*\*?", r"\1", text)


def plain(text: str) -> str:
    """The same as plain text."""
    return html.unescape(re.sub(r"<[^>]+>", "", in_code(text)))


def page_list(known: dict[str, About], here: str = "") -> str:
    """All pages as a list of links; further pages stand below their chapter's."""
    items = ""
    for chapter, stems in groupby(chapters(known), key=lambda stem: stem[:2]):
        links = [link(stem, known[stem].title, stem == here) for stem in stems]
        further = "".join(f"<li>{one}</li>\n" for one in links[1:])
        inside = f"\n<ul>\n{further}</ul>" if further else ""
        open_class = ' class="here"' if chapter == here[:2] else ""
        items += f"<li{open_class}>{links[0]}{inside}</li>\n"
    for stem in (stem for stem in known if stem in DOCUMENTS):
        items += f"<li>{link(stem, DOCUMENT_NAMES[stem], stem == here)}</li>\n"
    return f"<ul>\n{items}</ul>"


def chapters(known: dict[str, About]) -> list[str]:
    """The notebooks' stems in their order."""
    return sorted((stem for stem in known if stem not in DOCUMENTS), key=pages.in_order)


def link(stem: str, words: str, here: bool = False) -> str:
    """A page's link; the one that is open says so."""
    current = ' aria-current="page"' if here else ""
    return f'<a href="{stem}.html"{current}>{html.escape(words)}</a>'


def neighbours(stem: str, stems: list[str]) -> tuple[str, str]:
    """What comes before and after a page, "" for nothing.

    A chapter leads to the next chapter, and a further page to the next one of its chapter; the last
    of them leads to the next chapter as well.
    """
    core = [one for one in stems if pages.FURTHER not in one]
    line = core if pages.FURTHER not in stem else stems
    place = line.index(stem)
    return (line[place - 1] if place else "", line[place + 1] if place + 1 < len(line) else "")


def onward(stem: str, known: dict[str, About]) -> str:
    """Links to the previous and the next page, and to the further pages of this chapter."""
    stems = chapters(known)
    further = [one for one in stems if one[:2] == stem[:2] and pages.FURTHER in one]
    text = ""
    if further and pages.FURTHER not in stem:
        items = "".join(
            f"<li>{link(one, known[one].title)}<p>{in_code(known[one].question)}</p></li>\n"
            for one in further
        )
        text += f"<h2>Further pages of this chapter</h2>\n<ul>\n{items}</ul>\n"
    before, after = neighbours(stem, stems)
    for name, one in (("Previous", before), ("Next", after)):
        if one:
            words = html.escape(known[one].title)
            text += (
                f'<a class="{name.lower()}" href="{one}.html"><small>{name}</small> {words}</a>\n'
            )
    return f'<nav class="onward" aria-label="Where to go next">\n{text}</nav>' if text else ""


def with_frame(main: str, known: dict[str, About], stem: str, site: Site) -> str:
    """A page of the book: contents at the left, headings at the right, what is next at the end."""
    own = known[stem]
    contents = "".join(
        f'<li class="level-{level}"><a href="#{place}">{words}</a></li>\n'
        for level, place, words in headings(main)
    )
    sides = (
        '<nav class="book-contents" aria-label="Pages"><details class="book-pages">'
        f"<summary>All pages</summary>\n{page_list(known, stem)}</details></nav>\n"
        '<nav class="page-contents" aria-label="On this page"><details class="on-this-page">'
        f"<summary>On this page</summary>\n<ul>\n{contents}</ul></details></nav>\n{UNFOLD}"
    )
    after = "" if stem in DOCUMENTS else onward(stem, known)
    main = main.replace("</main>", f"{after}\n</main>")
    body = f'<div class="columns">\n{sides}{main}\n</div>'
    return document(
        f"{own.title} · {NAME}", plain(own.question), f"{stem}.html", body, run_notes([own]), site
    )


def run_notes(known: list[About]) -> str:
    """When, on which machine and from which edition the pages were run: one for each of these."""
    runs = dict.fromkeys((one.day, one.machine) for one in known if one.day)
    return "".join(f"<p>Run on {day}, on {html.escape(machine)}.</p>\n" for day, machine in runs)


def document(
    name: str, description: str, file: str, body: str, notes: str, site: Site, base: str = ""
) -> str:
    """A whole HTML file; `base` is for one that a server shows at any address."""
    icon = html.escape(ICON)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'{base}<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(name, quote=False)}</title>\n"
        f"{preview(name, description, file, site)}"
        '<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="{icon}">\n<link rel="stylesheet" href="{CSS}">\n'
        "</head>\n<body>\n"
        '<a class="skip" href="#page">Skip to the text</a>\n'
        f'<header class="top"><a class="brand" href="index.html">{STRIPES}<span>{NAME}</span></a>'
        f"\n{FORM}</header>\n{body}\n"
        f'<footer class="foot">{foot(notes, site)}</footer>\n'
        f'<script src="{JS}"></script>\n</body>\n</html>\n'
    )


def foot(notes: str, site: Site) -> str:
    """Which edition this is, who ran it, and where it comes from."""
    words = f"Edition {html.escape(edition())}."
    if site.repository:
        words += f' <a href="{html.escape(site.repository)}">Source code</a>.'
    return f"<p>{words} {NAME} is free software under the MIT licence.</p>\n{notes}"


def preview(name: str, description: str, file: str, site: Site) -> str:
    """What other sites show of a page that somebody shares; addresses only if they are known."""
    values = {"og:type": "website", "og:site_name": NAME, "og:title": name.partition(" · ")[0]}
    values["og:description"] = description
    if site.address:
        values["og:url"] = site.page(file)
        values["og:image"] = site.page(card_of(file))
        values["og:image:alt"] = f"{name.partition(' · ')[0]}: {description}"
    tags = "".join(
        f'<meta property="{key}" content="{html.escape(value)}">\n' for key, value in values.items()
    )
    tags += f'<meta name="description" content="{html.escape(description)}">\n'
    tags += '<meta name="twitter:card" content="summary_large_image">\n'
    if site.address:
        tags += f'<link rel="canonical" href="{html.escape(site.page(file))}">\n'
    return tags


def card_of(file: str) -> str:
    """The picture that stands for a page in previews."""
    return f"cards/{file.removesuffix('.html')}.png"


def not_found(site: Site) -> str:
    """What a server shows for an address that does not exist, at whatever depth."""
    base = f'<base href="{html.escape(site.address)}/">\n' if site.address else ""
    body = (
        '<main id="page" class="alone"><h1>There is no such page</h1>\n'
        '<p>It may have another name now. <a href="index.html">The first page</a> has them all, '
        "and the search at the top looks into each of them.</p></main>"
    )
    text = document(
        f"Not found · {NAME}", "There is no such page.", "404.html", body, "", site, base
    )
    return re.sub(r'<link rel="canonical"[^>]*>\n', "", text)


def sitemap(files: list[str], site: Site) -> str:
    """The list of all pages for search engines; they want whole addresses."""
    urls = "".join(f"<url><loc>{html.escape(site.page(file))}</loc></url>\n" for file in files)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{urls}</urlset>\n'
    )
