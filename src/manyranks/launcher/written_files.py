"""The files that this kernel has written with `%%writefile`: says when somebody else changed one.

Two kernels, or a kernel and an editor, may work in one folder. The ranks run a file as it is.
"""

import contextlib
from pathlib import Path

from manyranks.diagnostics import user_code

CHANGE_NOTICE = (
    "{file} is not as this notebook wrote it: it was changed in an editor, or by another notebook. "
    "The ranks run it as it is now. To have this notebook's own again, run the cell that writes it."
)
KNOWN_CONTENTS: dict[Path, bytes] = {}  # as this kernel's reader knows each file


def record_contents(path: Path) -> None:
    """Remember the file as this kernel has just written it."""
    KNOWN_CONTENTS[path] = path.read_bytes()


def report_changed_files() -> None:
    """Print a line for each file that someone else has changed, once for each change."""
    for path, contents in KNOWN_CONTENTS.items():
        with contextlib.suppress(OSError):  # a rank that imports a deleted file says so
            KNOWN_CONTENTS[path] = path.read_bytes()
        if KNOWN_CONTENTS[path] != contents:
            print(CHANGE_NOTICE.format(file=user_code.short(str(path))), flush=True)
