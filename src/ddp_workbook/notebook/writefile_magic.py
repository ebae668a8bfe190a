"""IPython's `%%writefile`, made safe for a folder in which two kernels work."""

import os
from pathlib import Path

from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import parse_argstring
from IPython.core.magics.osm import OSMagics

from ddp_workbook.files import write_whole
from ddp_workbook.launcher import reader_files


@magics_class
class WritefileMagics(Magics):
    """Replaces IPython's magic of that name, with the same arguments and messages."""

    @cell_magic
    def writefile(self, line: str, cell: str) -> None:
        """Write the cell to a file, at its end with -a. See `%%writefile` of IPython.

        The first file below work/ makes that folder, as everything of the workbook does.
        The file is replaced atomically, so that no rank of another kernel reads half of it. This
        kernel remembers what it wrote, so that a launch can say when someone else has changed it.
        """
        asked = parse_argstring(OSMagics.writefile, line)
        named = asked.filename
        if named[:1] == named[-1:] and named[:1] in ('"', "'"):
            named = named[1:-1]
        named = os.path.expanduser(named)
        path = Path(os.path.realpath(named))
        exists, before = path.exists(), b""
        try:
            if not can_be_replaced(path):
                raise PermissionError(path)
            before = path.read_bytes() if asked.append and exists else b""
            write_whole(path, before.decode() + cell)
        except (OSError, UnicodeError):  # IPython writes it in place, or raises the right error
            OSMagics(self.shell).writefile(line, cell)
        else:
            done = ("Appending to" if asked.append else "Overwriting") if exists else "Writing"
            print(done, named)
        reader_files.wrote(path, before + cell.encode())


def can_be_replaced(path: Path) -> bool:
    """True for a file that may be written, or made in an existing folder; not a device or pipe.

    A read-only file could be replaced as well, but only against its owner's wish.
    """
    if path.exists():
        return path.is_file() and os.access(path, os.W_OK)
    return path.parent.is_dir() or path.parent == Path("work").resolve()
