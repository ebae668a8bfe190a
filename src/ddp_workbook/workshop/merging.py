"""A page that both its reader and a newer edition have changed, cell by cell."""

import secrets
from collections import defaultdict


def merge(base: dict, mine: dict, theirs: dict) -> tuple[dict, list[dict]]:
    """The newer page with the reader's own cells in it, and cells of theirs that found no place.

    `base` is the page as it was shipped, `mine` as its reader has it, `theirs` as it is shipped
    now. A cell that only one of the two has changed is that one's. If both have, the page gets the
    new cell, and the reader's is in the list. Cells are known by their ids; a cell that the reader
    has added stays below the one that it followed. Outputs stay where the code does. A page without
    any shipped id is in the list as a whole.

    Raises KeyError, TypeError or AttributeError if `mine` is no notebook.
    """
    old, new = ({cell["id"]: cell for cell in page["cells"]} for page in (base, theirs))
    own: dict[str, dict] = {}
    for cell in mine["cells"]:
        own.setdefault(cell.get("id"), cell)
    if not own.keys() & old.keys():
        return {**theirs, "metadata": _metadata(base, mine, theirs)}, mine["cells"]
    cells, conflicts = [], []
    for key, cell in new.items():
        was, has = old.get(key), own.get(key)
        if has is None:
            if was is None or not same(was, cell):  # its reader has deleted it otherwise
                cells.append(cell)
        elif same(has, cell) or (was and same(was, cell)):
            cells.append({**has, "metadata": has.get("metadata", {}) | cell["metadata"]})
        else:
            cells.append(cell)
            conflicts += [] if was and same(has, was) else [has]
    page_ids = {cell["id"] for cell in cells}
    additions: dict[str | None, list[dict]] = defaultdict(list)  # by the id of the cell above
    above = None
    for cell in mine["cells"]:
        key = cell.get("id")
        first = own[key] is cell
        if first and key in page_ids:
            above = key
        elif first and key in old:  # it is shipped no more
            conflicts += [cell] if key not in new and not same(cell, old[key]) else []
        else:
            additions[above].append(cell if first and key else {**cell, "id": secrets.token_hex(4)})
    all_cells = [
        *additions[None],
        *(item for cell in cells for item in (cell, *additions[cell["id"]])),
    ]
    merged_page = {**theirs, "metadata": _metadata(base, mine, theirs), "cells": all_cells}
    merged_page["nbformat_minor"] = max(mine.get("nbformat_minor", 0), theirs["nbformat_minor"])
    return merged_page, conflicts


def same(first: dict, second: dict) -> bool:
    """Whether two cells hold the same text, as cells of the same type."""
    return _content(first) == _content(second)


def _content(cell: dict) -> tuple[str, str]:
    return cell["cell_type"], "".join(cell["source"]).rstrip()


def _metadata(base: dict, mine: dict, theirs: dict) -> dict:
    """The new page's, with what the reader has chosen, such as another kernel."""
    own_settings = {
        key: value
        for key, value in mine.get("metadata", {}).items()
        if value != base["metadata"].get(key)
    }
    return theirs["metadata"] | own_settings
