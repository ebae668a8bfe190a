"""What the commands share: how a script is named, and errors in plain words."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

SCRIPT = typer.Argument(
    metavar="SCRIPT [WORDS]", help="The script, and after -- its own command line."
)
Script = Annotated[list[str], SCRIPT]
OptionalScript = Annotated[list[str] | None, SCRIPT]
Network = Annotated[
    str | None, typer.Option(help='"1 Gbit/s, 0.5 ms": communicate as on such a network.')
]
AsIfGPUs = Annotated[
    bool, typer.Option(help="Compute on the CPU what asks for a GPU that is not here.")
]
Timeout = Annotated[float, typer.Option(help="Seconds until the ranks are stopped.")]


@contextmanager
def plain_errors() -> Iterator[None]:
    """End with exit code 2 and the error's own text if a name or a folder cannot be used."""
    from manyranks.errors import WorkbookError

    try:
        yield
    except WorkbookError as error:
        typer.echo(error.explain(), err=True)
        raise typer.Exit(2) from None
