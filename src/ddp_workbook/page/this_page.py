"""Which page this kernel runs."""

import os
from collections import Counter
from pathlib import Path

from IPython import get_ipython

from ddp_workbook.page import pages

SESSION = "JPY_SESSION_NAME"  # the notebook's path, as Jupyter's server tells its kernels


def this_page() -> Path | None:
    """The page of the workbook that runs in this kernel; None if it is none of them.

    Jupyter's server says which, other front ends do not: there, the page is the one that has a cell
    which ran here, word for word, and which no other page has.
    """
    try:
        paths = pages.all_pages()
    except pages.BadPage:
        return None
    session_stem = Path(os.environ.get(SESSION, "")).stem
    for path in paths:
        if path.stem == session_stem:
            return path
    shell = get_ipython()
    history = {source.strip() for source in shell.history_manager.input_hist_raw} if shell else ()
    cells = {
        path: [pages.source(cell).strip() for cell in pages.load(path)["cells"]] for path in paths
    }
    count = Counter(source for sources in cells.values() for source in set(sources))
    for path, sources in cells.items():
        if any(source in history and count[source] == 1 for source in sources):
            return path
    return None
