"""A cell whose magic stands below a comment: IPython would look for a magic of a line."""

MAGICS = ("%%ranks", "%%exercise", "%%writefile")
SAYS = (
    "{magic} must be the first line of its cell, above comments. Nothing was run: move it there, "
    "and run the cell again."
)


def warn_misplaced_magic(lines: list[str]) -> list[str]:
    """An input transformer of IPython: such a cell becomes one that says what to do.

    `lines` are those of the cell, with their line ends; empty ones at its beginning are gone.
    """
    for number, line in enumerate(lines):
        magic = line.split(maxsplit=1)[0] if line.startswith("%%") else ""
        if number and magic in MAGICS:
            return [f"print({SAYS.format(magic=magic)!r})\n"]
        if line.strip() and not line.startswith("#"):
            return lines
    return lines
