"""`time`: the minutes that pages take, and a day with a clock."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ddp_workbook.workshop.commands import FOR_TEACHERS, Pages
from ddp_workbook.workshop.requirements import require_course
from manyranks.command_line import plain_errors

app = typer.Typer()


@app.command("time", rich_help_panel=FOR_TEACHERS)
def time_pages(
    names: Pages = None,
    run: Annotated[
        bool, typer.Option(help="Also run each page, to see how long that takes here.")
    ] = True,
    plan: Annotated[
        str | None, typer.Option(help="A plan of the guide on a clock: half-day, first-day, ...")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="These pages on a clock; 9:00 is the default of --plan.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="With --plan or --start: when it must be over.")
    ] = None,
    set_up: Annotated[
        bool, typer.Option("--set-up/--no-set-up", help="With --start: set-up comes first.")
    ] = True,
) -> None:
    """Show the minutes that pages take, and how long their cells run here.

    With --start, show the pages as a day, with a clock: set-up, two
    questions a chapter for the whole room, 10 % to spare. The words
    break, lunch and break:10 (minutes) may stand between pages. With
    --plan, show a plan of the instructor's guide. If you are late,
    name the pages that are left, with --no-set-up, the time and
    --until.

    The exit code is 1 if a cell failed, or if the day does not fit,
    and 2 if a page, a plan or a time cannot be used.
    """
    require_course()
    from ddp_workbook.workshop.page_times import page_times

    if (plan, start, until) != (None, None, None):
        show_day(names or [], plan, start, until, set_up)
        return
    headings = ["page", "teaching", "exercises", "page says", *(["its cells run"] if run else [])]
    caption = "minutes, computed from words, code, questions and exercises"
    if not run:
        caption += "; without a run, code that cells show does not count"
    table = Table(*headings, caption=caption)
    failed = []
    with plain_errors():
        for page_time in page_times(names or [], run):
            both = page_time.stated_minutes
            stated = "{} + {}".format(*both) if both else "none"
            row = [page_time.stem, f"{page_time.teaching:.0f}", str(page_time.exercises), stated]
            table.add_row(*row, *([f"{page_time.seconds:.0f} s"] if run else []))
            failed += [f"{page_time.stem}, {error}" for error in page_time.failed]
    Console().print(table)
    for line in failed:
        typer.echo(line, err=True)
    raise typer.Exit(int(bool(failed)))


def show_day(
    names: list[str], plan: str | None, start: str | None, until: str | None, set_up: bool
) -> None:
    """Print a plan or a list of pages on a clock, and what to leave out if it does not fit."""
    from ddp_workbook.workshop import timetable

    with plain_errors():
        text = timetable.guide_text()
        known = timetable.all_minutes()
        if plan is not None and names:
            raise timetable.BadPlan("Give a --plan of the guide, or pages of your own, not both.")
        limit, rows = (
            (None, timetable.own_list(names, known, set_up))
            if plan is None
            else timetable.named_plan(plan, text, known)
        )
        begin = timetable.time_of_day(start if start is not None else "9:00")
        end = (
            timetable.time_of_day(until) if until is not None else begin + limit if limit else None
        )
        if end is not None and end <= begin:
            raise timetable.BadPlan(
                f"It would have to be over at {timetable.clock(end)}, before it starts."
            )
        rows = timetable.on_the_clock(rows, begin)
        late = timetable.in_minutes(rows[-1].start) - end if end is not None else 0
        cuts = timetable.to_leave_out(rows, late, text) if late > 0 else []
    numbers = "teaching", "exercises", "questions", "slack"
    caption = "After each page: File > Close and Shut Down Notebook."
    table = Table(caption=caption, caption_justify="left")
    for name in ("start", "what", *numbers):
        table.add_column(name, justify="left" if name == "what" else "right")
    for row in rows:
        parts = row.teaching, row.exercises, row.questions, row.slack
        cells = [str(n) if row.page else "" for n in parts]
        table.add_row(row.start, escape(timetable.plain(row.what)), *cells)
    table.add_section()
    page_rows = [row for row in rows if row.page]
    sums = [sum(getattr(row, name) for row in page_rows) for name in numbers]
    whole = timetable.clock(sum(row.length for row in rows))
    table.add_row("total", f"{whole} hours, {len(page_rows)} pages", *map(str, sums))
    Console().print(table)
    if late <= 0:
        return
    typer.echo(f"This ends {late} minutes late. Leave out:")
    for cut in cuts:
        typer.echo(f"- {cut.stem}: {timetable.plain(cut.words)} ({cut.minutes} min)")
    if (savings := sum(cut.minutes for cut in cuts)) < late:
        typer.echo(f"Even then {late - savings} minutes are missing: take a shorter plan.")
    raise typer.Exit(1)
