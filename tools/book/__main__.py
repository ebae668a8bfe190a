"""Execute the notebooks and build the HTML to read: `make book`.

The book is in build/book. In build/book_without_answers, hints and solutions are left out, and what
a cell showed after a prediction is folded, with the words that explain it. A page is executed again
only if something that it uses has changed. An earlier book stays until the new one is complete.
"""

import argparse
import copy
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import nbformat

from ddp_workbook.page.pages import BadPage, find_pages
from tools.book import ROOT, page, title
from tools.book.answers import fold_answers, mark_answers
from tools.book.contents import About, about, index, with_contents
from tools.book.links import broken_links
from tools.book.running import run_all
from tools.book.search import SCRIPT, entries, search_index

BUILD = ROOT / "build"
FORMS = {"book": False, "book_without_answers": True}  # folder -> without answers
WITH_ERRORS = "book_with_errors"


def main(words: list[str] | None = None) -> int:
    """Build all pages; 1 if a cell failed or a link leads nowhere, 2 for an unknown page."""
    parser = argparse.ArgumentParser(prog="make book", allow_abbrev=False)
    parser.add_argument(
        "--pages", nargs="+", metavar="PAGE", default=[], help="only these: 00 02 ..."
    )
    parser.add_argument("--fresh", action="store_true", help="execute also what has not changed")
    options = parser.parse_args(words)
    try:
        paths = find_pages(options.pages)
    except BadPage as error:
        print(error, file=sys.stderr)
        return 2
    # Chosen pages have a place of their own, and leave a complete book alone.
    places = {name: BUILD / (f"{name}_chosen" if options.pages else name) for name in FORMS}
    for place in places.values():
        restore(place)
    failed: list[str] = []
    notebooks = dict(run_all(sorted(set(paths)), failed, fresh=options.fresh))
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-book-", dir=BUILD) as folder:
        for name, without in FORMS.items():
            book = Path(folder, name)
            book.mkdir()
            failed += write_book(book, copy.deepcopy(notebooks).items(), without_answers=without)
        if failed:
            replace(Path(folder), BUILD / WITH_ERRORS)
        for name in () if failed else FORMS:
            replace(Path(folder, name), places[name])
    if failed:
        print("\n".join(dict.fromkeys(failed)))
        print(f"The new book is in {BUILD / WITH_ERRORS}, and an earlier one was not replaced.")
        return 1
    for name, without in FORMS.items():
        print(f"The book {'without' if without else 'with'} answers: {places[name] / 'index.html'}")
    return 0


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
) -> list[str]:
    """Write all files of the book into its folder; return the links that lead nowhere.

    `notebook_pairs` has each page's stem and notebook, which this changes; their pictures are
    beside the folder `notebooks`.
    """
    notebooks_by_stem = dict(notebook_pairs)
    titles: dict[str, str] = {}
    known: dict[str, About] = {}
    texts, sections = {}, []
    for stem, notebook in notebooks_by_stem.items():
        titles[stem], known[stem] = title(notebook), about(stem, notebook)
        answers = mark_answers(notebook) if without_answers else []
        sections += entries(stem, notebook, hidden=[id for ids in answers for id in ids])
        texts[stem] = fold_answers(page(notebook, notebooks, notebooks_by_stem.keys()), answers)
    for stem, text in texts.items():
        (book / f"{stem}.html").write_text(with_contents(text, titles, stem), encoding="utf-8")
    (book / "index.html").write_text(index(titles, known), encoding="utf-8")
    (book / SCRIPT).write_text(search_index(sections), encoding="utf-8")
    return broken_links(book)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(
            "\nStopped. Pages that were executed are kept: make book continues with the others."
        )
