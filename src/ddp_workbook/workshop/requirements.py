"""What commands of the course need: a checkout of the workbook, and the packages of `.[lab]`.

`pip install` brings the tools alone, and `ddp-workbook new` with them.
"""

from importlib.util import find_spec

import typer

from ddp_workbook.page import pages

PACKAGES = (  # as they are imported; pyproject.toml's extra `lab` has them, with their reasons
    *("jupyterlab", "ipykernel", "nbclient", "ipywidgets", "tornado"),
    *("pygments", "jupyterlab_pygments"),
)


def require_checkout() -> None:
    """End with exit code 2 and a sentence if the package is installed without its checkout."""
    if not pages.FOLDER.is_dir():
        refuse(
            "This command is for the course, which is used in a checkout of the workbook, and "
            f"there is no folder {pages.FOLDER}. Run `git clone` and `make setup`, and use "
            ".venv/bin/ddp-workbook there."
        )


def require_course() -> None:
    """The same if packages of the course are missing, too."""
    require_checkout()
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        refuse(
            f"This command is for the course, and this Python lacks {', '.join(missing)}: "
            f"`make setup` in {pages.CHECKOUT} installs what the course needs, in .venv."
        )


def refuse(sentence: str) -> None:
    """End the command."""
    typer.echo(sentence, err=True)
    raise typer.Exit(2)
