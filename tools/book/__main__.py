"""Execute the notebooks and build the site to read: `make book`.

The book is in build/book. In build/book_without_answers, hints and solutions are left out, and what
a cell showed after a prediction is folded, with the words that explain it. A page is executed again
only if something that it uses has changed. Where a page fails, its earlier edition stays in the
book, and the first page says so; without one, or if a link leads nowhere, the whole earlier book
stays. An earlier book is there until the new one is complete.
"""

import argparse
import copy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import nbformat

from ddp_workbook.page.pages import BadPage, find_pages
from tools.book import ROOT, page
from tools.book.answers import fold_answers, mark_answers
from tools.book.frame import CSS, JS, about, card_of, not_found, plain, sitemap, with_frame
from tools.book.front import ABOUT, CLAIM, front
from tools.book.links import broken_links
from tools.book.page import of_document
from tools.book.pictures import card, first_picture, small
from tools.book.running import changed_pages, run_all
from tools.book.search import SCRIPT, entries, search_index
from tools.book.site import DOCUMENTS, NAME, Site, copy_sources
from tools.book.style import STATIC, style_sheet

BUILD = ROOT / "build"
FORMS = {"book": False, "book_without_answers": True}  # folder -> without answers
WITH_ERRORS = "book_with_errors"


def main(words: list[str] | None = None) -> int:
    """Build all pages; 1 if a cell failed or a link leads nowhere, 2 for an unknown page."""
    options = parse(words)
    try:
        paths = sorted(set(find_pages(options.pages)))
        if options.changed:
            paths = changed_pages(paths, options.changed)
    except BadPage as error:
        print(error, file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(error.stderr.strip(), file=sys.stderr)
        return 2
    site = Site(options.address.rstrip("/"), options.repository.rstrip("/"), options.commit)
    # Chosen pages have a place of their own, and leave a complete book alone.
    chosen = "_chosen" if options.pages or options.changed else ""
    places = {name: BUILD / f"{name}{chosen}" for name in FORMS}
    for place in places.values():
        restore(place)
    runs = dict(run_all(paths, fresh=options.fresh))
    new = {stem: run.notebook for stem, run in runs.items()}
    shown = {stem: run.earlier or run.notebook for stem, run in runs.items()}
    failed = [f"{stem}.ipynb: {error}" for stem, run in runs.items() for error in run.errors]
    complete = all(run.earlier for run in runs.values() if run.errors)
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-book-", dir=BUILD) as folder:
        if failed:
            write_forms(Path(folder, WITH_ERRORS), new, site)
            replace(Path(folder, WITH_ERRORS), BUILD / WITH_ERRORS)
        broken = write_forms(Path(folder), shown, site) if complete else []
        if broken:
            replace(Path(folder), BUILD / WITH_ERRORS)
        for name in FORMS if complete and not broken else ():
            replace(Path(folder, name), places[name])
    print("\n".join(dict.fromkeys(failed + broken)), end="\n" * bool(failed + broken))
    if broken or not complete:
        print(f"The new book is in {BUILD / WITH_ERRORS}, and an earlier one was not replaced.")
        return 1
    for name, without in FORMS.items():
        print(f"The book {'without' if without else 'with'} answers: {places[name] / 'index.html'}")
    if failed:
        print(f"Pages that failed are there as they were; as they are, in {BUILD / WITH_ERRORS}.")
    return 1 if failed else 0


def parse(words: list[str] | None) -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(prog="make book", allow_abbrev=False)
    parser.add_argument(
        "--pages", nargs="+", metavar="PAGE", default=[], help="only these: 00 02 ..."
    )
    parser.add_argument(
        "--changed", metavar="COMMIT", help="only pages whose files have changed since then"
    )
    parser.add_argument("--fresh", action="store_true", help="execute also what has not changed")
    parser.add_argument("--address", default="", help="where the book will be published")
    parser.add_argument("--repository", default="", help="the repository's address, for links")
    parser.add_argument("--commit", default="", help="the commit that links to sources lead to")
    return parser.parse_args(words)


def write_forms(folder: Path, notebooks: dict[str, nbformat.NotebookNode], site: Site) -> list[str]:
    """Write both forms of the book below the folder; return the links that lead nowhere."""
    broken = []
    for name, without in FORMS.items():
        book = folder / name
        book.mkdir(parents=True)
        pairs = copy.deepcopy(notebooks).items()
        broken += write_book(book, pairs, without_answers=without, site=site)
    return broken


def replace(new: Path, place: Path) -> None:
    """Move a folder to its place; the one that was there goes when the new one is complete."""
    earlier = place.with_name(f"{place.name}.earlier")
    shutil.rmtree(earlier, ignore_errors=True)
    if place.exists():
        place.rename(earlier)
    try:
        shutil.move(new, place)
    except BaseException:
        restore(place)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def restore(place: Path) -> None:
    """Put the earlier folder back if a build was killed while it replaced it."""
    earlier = place.with_name(f"{place.name}.earlier")
    if earlier.exists() and not place.exists():
        earlier.rename(place)


def write_book(
    book: Path,
    notebook_pairs: Iterable[tuple[str, nbformat.NotebookNode]],
    *,
    without_answers: bool,
    notebooks: Path = ROOT / "notebooks",
    site: Site | None = None,
) -> list[str]:
    """Write all files of the book into its folder; return the links that lead nowhere.

    `notebook_pairs` has each page's stem and notebook, which this changes; their pictures are
    beside the folder `notebooks`.
    """
    site = site or Site()
    by_stem = dict(notebook_pairs)
    for stem, file in DOCUMENTS.items():
        by_stem[stem] = of_document((ROOT / file).read_text(encoding="utf-8"))
    known = {stem: about(notebook) for stem, notebook in by_stem.items()}
    texts, sections, pictures = {}, [], set()
    for folder in ("pictures", "cards"):
        (book / folder).mkdir()
    for stem, notebook in by_stem.items():
        answers = mark_answers(notebook) if without_answers else []
        sections += entries(stem, notebook, hidden=[id for ids in answers for id in ids])
        main = page(stem, notebook, notebooks, by_stem.keys(), site)
        if picture := first_picture(main):
            (book / "pictures" / f"{stem}.svg").write_text(small(picture), encoding="utf-8")
            pictures.add(stem)
        texts[f"{stem}.html"] = with_frame(fold_answers(main, answers), known, stem, site)
    texts |= {"index.html": front(known, pictures, site), "404.html": not_found(site)}
    for name, text in texts.items():
        (book / name).write_text(text, encoding="utf-8")
    copy_sources(book)
    (book / CSS).write_text(style_sheet(), encoding="utf-8")
    shutil.copyfile(STATIC / JS, book / JS)
    (book / SCRIPT).write_text(search_index(sections), encoding="utf-8")
    if site.address:
        files = [name for name in texts if name != "404.html"]
        (book / "sitemap.xml").write_text(sitemap(files, site), encoding="utf-8")
        for stem, own in known.items():
            picture = card(NAME, plain(own.question), own.title)
            (book / card_of(f"{stem}.html")).write_bytes(picture)
        (book / card_of("index.html")).write_bytes(card(NAME, ABOUT, CLAIM))
    return broken_links(book)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(
            "\nStopped. Pages that were executed are kept: make book continues with the others."
        )
