"""IPython's `%%writefile`, for a folder in which two kernels may work."""

import os
from pathlib import Path

from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import parse_argstring
from IPython.core.magics.osm import OSMagics

from manyranks.launcher import written_files


@magics_class
class WritefileMagics(Magics):
    """Replaces IPython's magic of that name, with the same arguments and messages."""

    @cell_magic
    def writefile(self, line: str, cell: str) -> None:
        """Write the cell to a file, at its end with -a. See `%%writefile` of IPython.

        The first file below work/ makes that folder, as everything of the workbook does. This
        kernel remembers what it wrote, so that a launch can say when someone else has changed it.
        """
        filename = parse_argstring(OSMagics.writefile, line).filename.strip("\"'")
        path = Path(os.path.realpath(os.path.expanduser(filename)))
        if path.parent == Path("work").resolve():
            path.parent.mkdir(exist_ok=True)
        OSMagics(self.shell).writefile(line, cell)
        if path.is_file():
            written_files.record_contents(path)
