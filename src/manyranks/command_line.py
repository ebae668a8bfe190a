"""What the commands share: their version, how a script is named, and errors in plain words."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

OWN_PROGRAM = "For a training program of your own"  # a heading of --help
OptionalScript = Annotated[
    list[str] | None,
    typer.Argument(metavar="SCRIPT", help="The script, and after -- its own command line."),
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


class ScriptCommand(TyperCommand):
    """A command that takes a script, and after -- words for it."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What --help shows after the command's name."""
        return ["[OPTIONS] SCRIPT [-- WORDS]"]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As every command, with a hint at an option that is not this command's."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if type(error).__name__ == "NoSuchOption":  # of click, or of typer's copy of click
                unknown: Any = error
                unknown.message += ". Words for the script come after --: SCRIPT -- WORDS."
            raise


DISTRIBUTION = "ddp-workbook"
FOLDER = Path(__file__).parents[1]


def version() -> str:
    """The version of the code that runs, also where another one is installed; "" if unknown."""
    project = FOLDER.parent / "pyproject.toml"  # in a checkout
    if project.is_file():
        own = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        return str(own["version"]) if own["name"] == DISTRIBUTION else ""
    beside = distributions(name=DISTRIBUTION, path=[str(FOLDER)])
    return next((one.version for one in beside), "")


def print_version(is_asked: bool) -> None:
    """Print the version and where the code is, and end."""
    if is_asked:
        typer.echo(f"{DISTRIBUTION} {version() or 'of an unknown version'}, in {FOLDER}")
        raise typer.Exit


def version_option(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Say which version, and where."
        ),
    ] = False,
) -> None:
    """What a program takes before its commands."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """End with exit code 2 and the error's own text if a name or a folder cannot be used."""
    from manyranks.errors import WorkbookError

    try:
        yield
    except WorkbookError as error:
        typer.echo(error.explain(), err=True)
        raise typer.Exit(2) from None
