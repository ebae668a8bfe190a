"""`ddp-workbook solve`: copies of the pages with a solution in each exercise's cell."""

from collections.abc import Sequence
from pathlib import Path

from ddp_workbook.judging.catalogue import find
from ddp_workbook.page import pages


def solve(names: Sequence[str], folder: Path) -> dict[Path, list[str]]:
    """Write solved copies of these pages to `folder`; return each copy's path and its exercises.

    Without names, all pages that have exercises. A copy that is there already is written again only
    if it would be the same: someone may have worked in it. Nothing is written if one is not.

    Raises:
        BadPage: an unknown page, a copy that would be overwritten, or a folder that cannot be
            written.
    """
    if folder.exists() and not folder.is_dir():
        raise pages.BadPage(
            f"{folder} is a file: copies cannot be written there. Nothing was changed."
        )
    copies: dict[Path, tuple[dict, list[str]]] = {}
    for path in pages.find_pages(names):
        page, solved = pages.load(path), []
        for name, cell in pages.exercises(page):
            pages.fill(cell, name, find(name).solution)
            solved.append(name)
        if solved:
            copies[folder / pages.place_of(path.stem)] = page, solved
        elif names:
            raise pages.BadPage(f"{path.stem} has no exercises, so there is nothing to solve.")
    for copy, (page, _) in copies.items():
        if copy.exists() and pages.load(copy) != page:
            raise pages.BadPage(
                f"{copy} exists and differs from a solved copy: it may be somebody's work. Nothing "
                "was written. Choose another folder, or move that file away."
            )
    for copy, (page, _) in copies.items():
        pages.save(copy, page)
    return {copy: solved for copy, (_, solved) in copies.items()}
