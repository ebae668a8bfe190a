"""Is a machine ready; pages solved, reset and brought up to date; packages for a room."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from ddp_workbook.workshop.requirements import require_checkout, require_course
from manyranks.command_line import plain_errors

app = typer.Typer()
FOR_READERS, FOR_TEACHERS = "For readers", "For those who teach"  # headings of --help
Pages = Annotated[
    list[str] | None,
    typer.Argument(metavar="PAGE", help="Such as 02, samplers or 04_samplers.ipynb; else all."),
]


@app.command(rich_help_panel=FOR_READERS)
def check(
    ranks: int = typer.Option(4, min=1, help="How many ranks to try."),
) -> None:
    """Try what every page needs of this machine, and say what to mend.

    The exit code is 1 if the workbook does not run here. After a
    note it runs, and something is different, such as a timing.
    """
    require_course()
    from ddp_workbook.workshop.machine_check import State, run_trial, trials

    console = Console()
    lines = []
    for name, trial in trials(ranks).items():
        finding = run_trial(trial)
        lines.append((name, finding.state))
        words = f"{finding.text}. {finding.fix}" if finding.fix else finding.text
        style = {State.OK: "green", State.NOTE: "yellow", State.FAILED: "bold red"}[finding.state]
        line = f"[{style}]{finding.state.value:7}[/] {name}: {escape(words)}"
        console.print(line, highlight=False, soft_wrap=True)  # one line each, also in a mail
    failed = [name for name, state in lines if state is State.FAILED]
    if failed:
        console.print(f"[bold]Not ready:[/bold] {', '.join(failed)}.")
        raise typer.Exit(1)
    console.print("[bold]Ready.[/bold] Start the workbook with `make lab`.")


@app.command(rich_help_panel=FOR_TEACHERS)
def solve(
    names: Pages = None,
    *,
    to: Annotated[Path, typer.Option(help="The folder for the solved copies.")],
) -> None:
    """Write copies of pages with a solution in each exercise's cell.

    The exit code is 2 if a page is unknown, or if a copy would
    overwrite a file that differs from it.
    """
    require_checkout()
    from ddp_workbook.workshop.solving import solve as write_copies

    with plain_errors():
        for copy, solved in write_copies(names or [], to).items():
            typer.echo(f"{copy}: {', '.join(solved)}")


@app.command(rich_help_panel=FOR_READERS)
def reset(
    name: Annotated[
        str | None, typer.Argument(help="The exercise, such as mean_over_ranks.")
    ] = None,
    notebook: Annotated[
        Path | None, typer.Option(help="The notebook; by default the exercise's own page.")
    ] = None,
    page: Annotated[
        str | None, typer.Option(help="A whole page, such as 02, as it was shipped.")
    ] = None,
) -> None:
    """Put an exercise's stub back into its cell, and keep the attempt as a file.

    A cell that was deleted, emptied or made Markdown comes back, too.
    With --page, the whole page comes back, and a copy of it is kept.

    Save the notebook in JupyterLab first. If it is open there, reload
    it afterwards: File > Reload Notebook from Disk.
    """
    require_checkout()
    from ddp_workbook.workshop.resetting import reset as put_back
    from ddp_workbook.workshop.resetting import reset_page

    if (name is None) == (page is None):
        raise typer.BadParameter("give the name of an exercise, or --page with a page")
    with plain_errors():
        if page is not None:
            path, copy = reset_page(page)
            was = f"What it was is kept in {copy}." if copy else "It was gone."
            typer.echo(f"{path} is as it was shipped. {was}")
            typer.echo("Reload the notebook if it is open. Saved attempts have not changed.")
            return
        attempt = put_back(str(name), notebook)
    typer.echo(f"The cell of {name} holds its stub.")
    if attempt:
        typer.echo(f"The attempt is kept in {attempt}. Reload the notebook if it is open.")


@app.command(rich_help_panel=FOR_READERS)
def update(
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A newer clone of the workbook, as on a stick; else git's."),
    ] = None,
) -> None:
    """Take a newer edition of the workbook, and keep your own cells.

    Without --from it is that of git's upstream. Where you and the new
    edition have changed the same cell, the page gets the new one, and
    yours is laid beside, in notebooks/work/pages. Your attempts stay.

    Save your pages in JupyterLab first, and reload them afterwards.
    The exit code is 1 if a page was left as it is, and 2 if there is
    nothing to update from.
    """
    require_checkout()
    from ddp_workbook.page.pages import CHECKOUT
    from ddp_workbook.workshop.updating import update as bring

    with plain_errors():
        outcome = bring(CHECKOUT, source)
    for path, (cells, copy) in outcome.aside.items():
        what = f"{cells} of your cells" if cells else "your file"
        typer.echo(f"{path}: new, and {what} had changed in the same place: kept in {copy}.")
    for path, moved in outcome.kept.items():
        now = f"has it as {moved}, without your changes" if moved else "has it no more"
        typer.echo(f"{path} is yours now: you had changed it, and the new edition {now}.")
    for path, why in outcome.unchanged.items():
        typer.echo(f"{path} was left as it is. {why} Save it, and run `update` again.", err=True)
    if outcome.new_files or outcome.removed_files:
        page_names = f", with {', '.join(outcome.pages)}" if outcome.pages else ""
        changed = len(outcome.new_files) + len(outcome.removed_files)
        files = "1 file is" if changed == 1 else f"{changed} files are"
        typer.echo(f"{files} new{page_names}.")
        typer.echo(
            "Reload open pages (File > Reload Notebook from Disk), and restart their kernels."
        )
        if outcome.installs:
            typer.echo("`make lab` will install what is new, when you start it next.")
    elif not outcome.unchanged:
        typer.echo("This is the newest edition already. Nothing was changed.")
    raise typer.Exit(int(bool(outcome.unchanged)))


@app.command(rich_help_panel=FOR_TEACHERS)
def wheels(
    to: Annotated[Path, typer.Option(help="The folder; it is made if it is missing.")],
) -> None:
    """Fill a folder from which `make lab WHEELS=DIR` installs without a network.

    It serves machines of the same system and Python as this one:
    run it once on each kind of machine, into one folder.
    """
    require_course()
    from ddp_workbook.page.pages import CHECKOUT

    line = [sys.executable, "-m", "tools.wheels", str(to.expanduser().absolute())]
    raise typer.Exit(subprocess.run(line, cwd=CHECKOUT, check=False).returncode)
