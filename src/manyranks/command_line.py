"""What the commands share: how a script is named, and errors in plain words."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

OptionalScript = Annotated[
    list[str] | None,
    typer.Argument(metavar="SCRIPT [WORDS]", help="The script, and after -- its own command line."),
]
Module = Annotated[
    str | None,
    typer.Option("-m", metavar="MODULE", help="Run a module, as python -m does, not a file."),
]
Network = Annotated[
    str | None, typer.Option(help='"1 Gbit/s, 0.5 ms": communicate as on such a network.')
]
AsIfGPUs = Annotated[
    bool, typer.Option(help="Compute on the CPU what asks for a GPU that is not here.")
]
Timeout = Annotated[float, typer.Option(help="Seconds until the ranks are stopped.")]


def script_words(script: list[str] | None, module: str | None) -> list[str]:
    """What to run, and its own command line."""
    if module:
        return ["-m", module, *(script or [])]
    for name in (script or [])[:1]:
        if not Path(name).exists() and Path(*name.split(".")).with_suffix(".py").is_file():
            raise typer.BadParameter(f"{name} is a module: write -m {name}.", param_hint="SCRIPT")
    return script or []


@contextmanager
def plain_errors() -> Iterator[None]:
    """End with exit code 2 and the error's own text if a name or a folder cannot be used."""
    from manyranks.errors import WorkbookError

    try:
        yield
    except WorkbookError as error:
        typer.echo(error.explain(), err=True)
        raise typer.Exit(2) from None
