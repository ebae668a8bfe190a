"""`grade`: what is solved, as a table or as certificates."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ddp_workbook.workshop.commands import FOR_TEACHERS
from ddp_workbook.workshop.requirements import require_course
from manyranks.command_line import plain_errors
from manyranks.errors import WorkbookError

app = typer.Typer()
Exercises = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Such as mean_over_ranks; else all with attempts."),
]
FORMS = ("table", "csv", "json")


@app.command(rich_help_panel=FOR_TEACHERS)
def grade(
    names: Exercises = None,
    work: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="The folder work/ of an attendee, also several; else your own."
        ),
    ] = None,
    words: Annotated[
        bool, typer.Option("--words", help="Also print each verdict that is not a pass.")
    ] = False,
    form: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
    to: Annotated[
        Path | None,
        typer.Option("--certificates", help="Also write a page to print for each attendee, here."),
    ] = None,
    workshop: Annotated[
        str | None, typer.Option(help="With --certificates: the workshop's name on them.")
    ] = None,
    without_sandbox: Annotated[
        bool,
        typer.Option(
            "--without-sandbox",
            help="Run the attempts of --work where no sandbox works, too: they could change "
            "your files and use the network.",
        ),
    ] = False,
) -> None:
    """Judge the saved attempts, as their pages do. This runs them.

    They run in a sandbox if bubblewrap is installed and works here;
    the output says so. Elsewhere, those of --work run only with
    --without-sandbox. Time and memory are limited in any case.

    An exercise that was solved counts, whatever was tried after it;
    the last column says how the latest attempt is. Everybody has the name
    of the folder in which their work/ is. The exit code is 1 if one
    is not solved, and 2 if a name is unknown, a folder has no attempts
    or nothing was run because there is no sandbox.
    """
    require_course()
    from ddp_workbook.judging.verdict import SOLVED
    from ddp_workbook.workshop.grading import attempts_folder, attendee_names, unknown_files
    from ddp_workbook.workshop.grading import grade as judge
    from ddp_workbook.workshop.sandbox import sandbox

    if form not in FORMS:
        raise typer.BadParameter(f"--format is {form!r}; it is one of {', '.join(FORMS)}")
    with plain_errors():
        folders = [attempts_folder(folder) for folder in work] if work else [attempts_folder()]
        folders = list(dict.fromkeys(folders))  # one that is named twice is judged once
        to_judge = [(folder, judge(names or [], folder)) for folder in folders]
        if work:
            check_sandbox(without_sandbox)
        grades = [(folder, result) for folder, results in to_judge for result in results]
    people = attendee_names(folders)
    rows = [
        {
            "who": people[folder],
            "folder": str(folder),
            "exercise": result.name,
            "attempts": result.attempts,
            "verdict": result.verdict.kind,
            "latest": result.latest,
            "sandbox": sandbox().name,
        }
        for folder, result in grades
    ]
    failures = [result for _, result in grades if result.verdict.kind != SOLVED]
    if form == "table":
        show_grades(rows, folders)
        for result in failures if words else []:
            typer.echo(f"\n{harmless(repr(result.verdict))}")
        more = " --words prints the verdicts." if failures and not words else ""
        typer.echo(f"{len(grades) - len(failures)} of {len(grades)} solved.{more}")
        typer.echo(f"Their code ran {sandbox()}.")
        for folder in folders if not names else []:
            if unknown := unknown_files(folder):
                file_names = harmless(", ".join(unknown))
                typer.echo(f"No exercise has the name of {file_names}: not judged.")
    else:
        import pandas as pd

        table = pd.DataFrame(rows)
        csv = form == "csv"
        text = table.to_csv(index=False) if csv else table.to_json(orient="records", indent=1)
        typer.echo(text, nl=not csv)
    if to is not None:
        write_certificates(to, rows, workshop)
    raise typer.Exit(int(bool(failures)))


def check_sandbox(may_run_without: bool) -> None:
    """Before other people's code runs: raise WorkbookError if it could do harm here."""
    from ddp_workbook.workshop.sandbox import danger, sandbox

    if sandbox().why and not may_run_without:
        raise WorkbookError(
            f"Nothing was run. There is no sandbox here, because {sandbox().why}. Without one, the "
            f"attempts {danger()}. Read them first; then --without-sandbox runs them all the same."
        )


def harmless(text: str) -> str:
    """The text without control characters, which could tell a terminal what to do."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def write_certificates(to: Path, rows: list[dict], workshop: str | None) -> None:
    """Write a page for each folder with something solved; say which, and who gets none."""
    from ddp_workbook.judging.verdict import SOLVED
    from ddp_workbook.workshop import certificates

    solved: dict[str, list[str]] = {}
    for row in rows:
        own = solved.setdefault(row["who"], [])
        if row["verdict"] == SOLVED:
            own.append(row["exercise"])
    with plain_errors():
        for path in certificates.write(to, solved, workshop or certificates.WORKSHOP):
            typer.echo(f"Certificate: {path}", err=True)
    if none := [name for name, own in solved.items() if not own]:
        typer.echo(f"Nothing solved, so no certificate: {', '.join(none)}.", err=True)


def show_grades(rows: list[dict], folders: list[Path]) -> None:
    """Print the table; with several folders, each row says whose it is."""
    several = len(folders) > 1
    title = None if several else str(folders[0])
    columns = ["exercise", "attempts", "verdict", "latest"]
    if several:
        columns.insert(0, "who")
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    Console().print(table)
