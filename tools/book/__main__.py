"""Execute every notebook and build the HTML to read, in build/book: `make book`.

With ARGS=--without-answers, in build/book_without_answers: hints and solutions are left out, and
what a cell showed after a prediction is folded, with the words that explain it.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat

from tools.book import NOTEBOOKS, ROOT, copy_layout, errors, execute, page, title
from tools.book.answers import fold_answers, mark_answers
from tools.book.contents import index, with_contents
from tools.book.links import broken_links
from tools.book.search import SCRIPT, entries, search_index


def main() -> int:
    """Build all pages; 1 if a cell failed or a link leads nowhere, with its name."""
    words = argparse.ArgumentParser(prog="make book", allow_abbrev=False)
    words.add_argument("--without-answers", action="store_true", help="for people who will do it")
    without = words.parse_args().without_answers
    book = ROOT / "build" / ("book_without_answers" if without else "book")
    shutil.rmtree(book, ignore_errors=True)
    book.mkdir(parents=True)
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        notebooks = copy_layout(Path(folder))
        executed = run_all(notebooks, failed)
        failed += write_book(book, executed, notebooks, without_answers=without)
    print("\n".join(failed) or f"The book is ready: {book / 'index.html'}")
    return int(bool(failed))


def run_all(notebooks: Path, failed: list[str]) -> Iterator[tuple[str, nbformat.NotebookNode]]:
    """Execute the pages in this folder, one after another; their errors are added to `failed`."""
    for path in NOTEBOOKS:
        started = time.monotonic()
        done = execute(notebooks / path.name)
        failed += [f"{path.name}: {error}" for error in errors(done)]
        print(f"  {path.stem}: {time.monotonic() - started:.0f} s", flush=True)
        yield path.stem, done


def write_book(
    book: Path,
    executed: Iterable[tuple[str, nbformat.NotebookNode]],
    notebooks: Path,
    *,
    without_answers: bool,
) -> list[str]:
    """Write all files of the book into its folder; return the links that lead nowhere.

    `executed` has each page's stem and notebook, which came from the folder `notebooks`.
    """
    titles, texts, found = {}, {}, []
    for stem, notebook in executed:
        titles[stem] = title(notebook)
        answers = mark_answers(notebook) if without_answers else []
        found += entries(stem, notebook, hidden=[id for ids in answers for id in ids])
        texts[stem] = fold_answers(page(notebook, notebooks), answers)
    for stem, text in texts.items():
        (book / f"{stem}.html").write_text(with_contents(text, titles, stem), encoding="utf-8")
    (book / "index.html").write_text(index(titles), encoding="utf-8")
    (book / SCRIPT).write_text(search_index(found), encoding="utf-8")
    return broken_links(book)


if __name__ == "__main__":
    sys.exit(main())
