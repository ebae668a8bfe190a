"""Commands for people who run the workshop: is a machine ready, what is solved, what fits."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
Pages = Annotated[
    list[str] | None,
    typer.Argument(metavar="PAGE", help="Such as 02, samplers or 04_samplers.ipynb; else all."),
]
Exercises = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Such as mean_over_ranks; else all with attempts."),
]
Script = Annotated[
    list[str],
    typer.Argument(metavar="SCRIPT [WORDS]", help="The script, and after -- its own command line."),
]
Network = Annotated[
    str | None, typer.Option(help='"1 Gbit/s, 0.5 ms": communicate as on such a network.')
]
Timeout = Annotated[float, typer.Option(help="Seconds until the ranks are stopped.")]

FORMS = ("table", "csv", "json")


@app.callback()
def commands() -> None:
    """Commands for people who run the workshop."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """End with exit code 2 and the error's own text if a name or a folder cannot be used."""
    from ddp_workbook.errors import WorkbookError

    try:
        yield
    except WorkbookError as error:
        typer.echo(error.explain(), err=True)
        raise typer.Exit(2) from None


@app.command()
def check(
    ranks: int = typer.Option(4, min=1, help="How many ranks to try."),
) -> None:
    """Try what every page needs of this machine, and say what to mend.

    The exit code is 1 if the workbook does not run here. After a
    note it runs, and something is different, such as a timing.
    """
    from ddp_workbook.instructor.machine_check import State, trials, tried

    console = Console()
    lines = []
    for name, trial in trials(ranks).items():
        found = tried(trial)
        lines.append((name, found.state))
        words = f"{found.text}. {found.fix}" if found.fix else found.text
        style = {State.OK: "green", State.NOTE: "yellow", State.FAILED: "bold red"}[found.state]
        line = f"[{style}]{found.state.value:7}[/] {name}: {escape(words)}"
        console.print(line, highlight=False, soft_wrap=True)  # one line each, also in a mail
    failed = [name for name, state in lines if state is State.FAILED]
    if failed:
        console.print(f"[bold]Not ready:[/bold] {', '.join(failed)}.")
        raise typer.Exit(1)
    console.print("[bold]Ready.[/bold] Start the workbook with `make lab`.")


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that does not exist.")],
    strategy: Annotated[str, typer.Option(help="ddp, or fsdp for large models.")] = "ddp",
    cluster: Annotated[str, typer.Option(help="slurm or pbs: whose job script.")] = "slurm",
) -> None:
    """Write a small training program of your own, with a test and a job script.

    It needs nothing of this workbook. The exit code is 2 if the
    folder has files already.
    """
    from ddp_workbook.program.new import write

    with plain_errors():
        for path in write(folder, strategy, cluster):
            typer.echo(path)
    typer.echo(f"Try it:\n  cd {folder}\n  python train.py\n  pytest")


@app.command()
def profile(
    script: Script,
    *,
    ranks: Annotated[int, typer.Option(min=1, help="How many ranks.")] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Steps to look at, after the first.")] = 5,
    network: Network = None,
    timeout: Timeout = 600,
    to: Annotated[
        Path | None, typer.Option(help="Also write a file of all ranks for Perfetto, here.")
    ] = None,
) -> None:
    """Run a training script on a few ranks, and say where a step goes.

    Computing, loading data, communication that nothing hides, waiting
    for the last rank. The exit code is 2 if the script cannot be run.
    """
    from ddp_workbook.recording.timeline import timeline
    from ddp_workbook.recording.traces import PARTS

    with plain_errors():
        found = timeline(*script, ranks=ranks, steps=steps, network=network, timeout=timeout)
        written = found.save(to) if to else None
    shown = Table(title="milliseconds of a step, mean over the steps")
    for name in ("rank", *PARTS):
        shown.add_column(name, justify="right")
    for rank, row in found.parts.groupby("rank")[list(PARTS)].mean().iterrows():
        shown.add_row(str(rank), *(f"{1e3 * row[part]:.1f}" for part in PARTS))
    Console().print(shown)
    typer.echo(found.in_a_sentence())
    if written:
        typer.echo(f"{written}: open it at ui.perfetto.dev")


@app.command()
def doctor(
    script: Script,
    *,
    ranks: Annotated[int, typer.Option(help="How many ranks, 2 or more.")] = 2,
    batches: Annotated[int, typer.Option(help="Batches of each pass over a DataLoader.")] = 16,
    passes: Annotated[int, typer.Option(help="Passes over a DataLoader.")] = 3,
    steps: Annotated[int, typer.Option(help="Steps of each optimizer.")] = 48,
    as_if_gpus: Annotated[
        bool, typer.Option("--as-if-gpus", help="Compute on the CPU what is written for GPUs.")
    ] = False,
    network: Network = None,
    timeout: Timeout = 120,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a training script on a few CPU ranks, and say what is wrong.

    What it writes goes to a folder that is thrown away. The exit code
    is 1 if something is wrong or likely to be, 2 if it cannot be run.
    """
    from ddp_workbook.checkup.diagnosis import doctor as look_at

    with plain_errors():
        found = look_at(
            *script,
            ranks=ranks,
            batches=batches,
            passes=passes,
            steps=steps,
            as_if_gpus=as_if_gpus,
            network=network,
            timeout=timeout,
        )
    typer.echo(json.dumps(found.as_dict(), indent=2) if as_json else str(found))
    raise typer.Exit(found.exit_code)


@app.command()
def solve(
    names: Pages = None,
    *,
    to: Annotated[Path, typer.Option(help="The folder for the solved copies.")],
) -> None:
    """Write copies of pages with a solution in each exercise's cell.

    The exit code is 2 if a page is unknown, or if a copy would
    overwrite a file that differs from it.
    """
    from ddp_workbook.instructor.solving import solve as write_copies

    with plain_errors():
        for copy, solved in write_copies(names or [], to).items():
            typer.echo(f"{copy}: {', '.join(solved)}")


@app.command()
def grade(
    names: Exercises = None,
    work: Annotated[
        list[Path] | None,
        typer.Option(help="The folder work/ of an attendee, also several; else this checkout's."),
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
) -> None:
    """Judge the saved attempts, as their pages do. This runs them.

    They run in a sandbox if bubblewrap is installed and works here;
    the output says so. Time and memory are limited in any case.

    An exercise that was solved counts, whatever was tried after it;
    the last column says how the latest attempt is. A certificate has
    the name of the folder in which somebody's work/ is. The exit code is
    1 if one is not solved, and 2 if a name is unknown or a folder
    has no attempts.
    """
    from ddp_workbook.exercises.judging.verdict import SOLVED
    from ddp_workbook.instructor.grading import attempts_folder, unknown_files, whose
    from ddp_workbook.instructor.grading import grade as judge
    from ddp_workbook.instructor.sandbox import sandbox

    if form not in FORMS:
        raise typer.BadParameter(f"--format is {form!r}; it is one of {', '.join(FORMS)}")
    with plain_errors():
        folders = [attempts_folder(one) for one in work] if work else [attempts_folder()]
        graded = [(folder, one) for folder in folders for one in judge(names or [], folder)]
    rows = [
        {
            "who": whose(folders)[folder],
            "folder": str(folder),
            "exercise": one.name,
            "attempts": one.attempts,
            "verdict": one.verdict.kind,
            "latest": one.latest,
            "sandbox": sandbox().name,
        }
        for folder, one in graded
    ]
    missed = [one for _, one in graded if one.verdict.kind != SOLVED]
    if form == "table":
        show_grades(rows, folders)
        for one in missed if words else []:
            typer.echo(f"\n{one.verdict!r}")
        more = " --words prints the verdicts." if missed and not words else ""
        typer.echo(f"{len(graded) - len(missed)} of {len(graded)} solved.{more}")
        typer.echo(f"Their code ran {sandbox()}.")
        for folder in folders if not names else []:
            if others := unknown_files(folder):
                typer.echo(f"No exercise has the name of {', '.join(others)}: not judged.")
    else:
        import pandas as pd

        table = pd.DataFrame(rows)
        csv = form == "csv"
        typer.echo(table.to_csv(index=False) if csv else table.to_json(orient="records", indent=1))
    if to is not None:
        write_certificates(to, rows, workshop)
    raise typer.Exit(int(bool(missed)))


def write_certificates(to: Path, rows: list[dict], workshop: str | None) -> None:
    """Write a page for each folder with something solved; say which, and who gets none."""
    from ddp_workbook.exercises.judging.verdict import SOLVED
    from ddp_workbook.instructor import certificates

    solved: dict[str, list[str]] = {}
    for folder in dict.fromkeys(row["folder"] for row in rows):
        own = [row for row in rows if row["folder"] == folder]
        name = certificates.name_of(Path(folder))
        name = own[0]["who"] if name in solved else name
        solved[name] = [row["exercise"] for row in own if row["verdict"] == SOLVED]
    with plain_errors():
        for path in certificates.write(to, solved, workshop or certificates.WORKSHOP):
            typer.echo(f"Certificate: {path}", err=True)
    if none := [name for name, own in solved.items() if not own]:
        typer.echo(f"Nothing solved, so no certificate: {', '.join(none)}.", err=True)


def show_grades(rows: list[dict], folders: list[Path]) -> None:
    """Print the table; with several folders, each row says whose it is."""
    several = len(folders) > 1
    title = None if several else str(folders[0])
    columns = ["who"] * several + ["exercise", "attempts", "verdict", "latest"]
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    Console().print(table)


@app.command()
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
    from ddp_workbook.instructor.resetting import reset as put_back
    from ddp_workbook.instructor.resetting import reset_page

    if (name is None) == (page is None):
        raise typer.BadParameter("give the name of an exercise, or --page with a page")
    with plain_errors():
        if page is not None:
            path, copy = reset_page(page)
            was = f"What it was is kept in {copy}." if copy else "It was gone."
            typer.echo(f"{path} is as it was shipped. {was}")
            typer.echo("Reload the notebook if it is open. Saved attempts have not changed.")
            return
        kept = put_back(str(name), notebook)
    typer.echo(f"The cell of {name} holds its stub.")
    if kept:
        typer.echo(f"The attempt is kept in {kept}. Reload the notebook if it is open.")


@app.command()
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
    from ddp_workbook.instructor.updating import update as bring
    from ddp_workbook.notebook.pages import CHECKOUT

    with plain_errors():
        done = bring(CHECKOUT, source)
    for path, (cells, kept) in done.aside.items():
        what = f"{cells} of your cells" if cells else "your file"
        typer.echo(f"{path}: new, and {what} had changed in the same place: kept in {kept}.")
    for path, why in done.left.items():
        typer.echo(f"{path} was left as it is. {why} Save it, and run `update` again.", err=True)
    if done.written or done.removed:
        named = f", with {', '.join(done.pages)}" if done.pages else ""
        typer.echo(f"{len(done.written) + len(done.removed)} files are new{named}.")
        typer.echo(
            "Reload open pages (File > Reload Notebook from Disk), and restart their kernels."
        )
        if done.installs:
            typer.echo("`make lab` will install what is new, when you start it next.")
    elif not done.left:
        typer.echo("This is the newest edition already. Nothing was changed.")
    raise typer.Exit(int(bool(done.left)))


@app.command("time")
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
    --plan, show a plan of the instructor's guide. If you are late, name the pages that are
    left, with --no-set-up, the time and --until.

    The exit code is 1 if a cell failed, or if the day does not fit,
    and 2 if a page, a plan or a time cannot be used.
    """
    from ddp_workbook.instructor.page_times import page_times

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
        for one in page_times(names or [], run):
            stated = "{} + {}".format(*one.stated) if one.stated else "none"
            row = [one.stem, f"{one.teaching:.0f}", str(one.exercises), stated]
            table.add_row(*row, *([f"{one.seconds:.0f} s"] if run else []))
            failed += [f"{one.stem}, {error}" for error in one.failed]
    Console().print(table)
    for line in failed:
        typer.echo(line, err=True)
    raise typer.Exit(int(bool(failed)))


def show_day(
    names: list[str], plan: str | None, start: str | None, until: str | None, set_up: bool
) -> None:
    """Print a plan or a list of pages on a clock, and what to leave out if it does not fit."""
    from ddp_workbook.instructor import timetable

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
        shown = [str(n) if row.page else "" for n in parts]
        table.add_row(row.start, escape(timetable.plain(row.what)), *shown)
    table.add_section()
    paged = [row for row in rows if row.page]
    sums = [sum(getattr(row, name) for row in paged) for name in numbers]
    whole = timetable.clock(sum(row.length for row in rows))
    table.add_row("total", f"{whole} hours, {len(paged)} pages", *map(str, sums))
    Console().print(table)
    if late <= 0:
        return
    typer.echo(f"This ends {late} minutes late. Leave out:")
    for cut in cuts:
        typer.echo(f"- {cut.stem}: {timetable.plain(cut.words)} ({cut.minutes} min)")
    if (saved := sum(cut.minutes for cut in cuts)) < late:
        typer.echo(f"Even then {late - saved} minutes are missing: take a shorter plan.")
    raise typer.Exit(1)


@app.command()
def wheels(
    to: Annotated[Path, typer.Option(help="The folder; it is made if it is missing.")],
) -> None:
    """Fill a folder from which `make lab WHEELS=DIR` installs without a network.

    It serves machines of the same system and Python as this one:
    run it once on each kind of machine, into one folder.
    """
    from ddp_workbook.notebook.pages import CHECKOUT

    line = [sys.executable, "-m", "tools.wheels", str(to.expanduser().absolute())]
    raise typer.Exit(subprocess.run(line, cwd=CHECKOUT, check=False).returncode)


@app.command()
def room(
    folder: Annotated[
        Path | None,
        typer.Option(envvar="WORKBOOK_ROOM", help="The folder of the room; see --serve."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Also write a page to project: it has nobody's attempts.")
    ] = None,
    names: Annotated[
        bool, typer.Option("--names", help="Names stand on the page to project, too.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two looks.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Listen for attendees on machines without that folder.")
    ] = False,
    address: Annotated[
        str | None, typer.Option(help="With --serve: listen here; else this machine's address.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --serve.")] = 8765,
    certificate: Annotated[
        Path | None, typer.Option(help="With --serve: a certificate (PEM), for TLS.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The key of --certificate.")] = None,
) -> None:
    """Show who is where, and at which exercise most are stuck, until Ctrl-C.

    Attendees who want to be seen join in a page: by a folder that all
    machines share, `join_room("a name", "folder")`, or with --serve
    over the network, `join("http://...", "code", "a name")`. Their
    answers are not shared. The exit code of --once is 1 if the folder
    cannot be read.
    """
    from ddp_workbook.progress_board.views import Invitation, View

    if folder is None and not serve:
        raise typer.BadParameter("name the room's --folder, or --serve the room over the network")
    if not serve and (address or certificate or key):
        raise typer.BadParameter("--address, --certificate and --key need --serve")
    with plain_errors():
        if not serve:
            assert folder is not None
            raise typer.Exit(View(folder, page, every, None, names).watch(once))
        from ddp_workbook.notebook.pages import CHECKOUT
        from ddp_workbook.progress_board import server

        folder = folder or CHECKOUT / "notebooks" / "work" / "served_room"
        page = page or folder / "room.html"
        kept = server.Room(folder, server.code_of(folder))
        secure = server.encryption(certificate, key)
        where = address or server.own_address()
        with server.RoomServer(kept, where, port, secure) as served:
            typer.echo(f"Listening on {served.address}. Project {page.absolute().as_uri()}")
            if not secure:
                typer.echo(server.UNENCRYPTED)
            invitation = Invitation(served.address, kept.code)
            raise typer.Exit(View(folder, page, every, invitation, names).watch(once))


@app.command()
def plan(
    parameters: str = typer.Option(
        "70B", help='A size ("70B"), a model ("Llama 3 8B", "GPT-3 175B"), or a config.json.'
    ),
    gpus: int = typer.Option(64, help="How many GPUs."),
    memory: str = typer.Option("", help='Of each GPU: "80GB" or "80GiB"; default: of --gpu.'),
    strategy: str = typer.Option("fully_shard", help="fully_shard, HSDP, DDP or ZeRO-1."),
    precision: str = typer.Option(
        "bf16", help="bf16 (kept and reduced in fp32), bf16-reduce (reduced in bf16) or fp32."
    ),
    batch: int = typer.Option(1, help="Sequences on each GPU."),
    global_batch: int = typer.Option(0, help="Sequences in a step of all GPUs; default: one each."),
    sequence: int = typer.Option(4096, help="Tokens in a sequence."),
    checkpoint: str = typer.Option("full", help="Activation checkpointing: full, selective, none."),
    offload: bool = typer.Option(False, help="Keep shards in the host's memory."),
    split_root: bool = typer.Option(False, help="Embedding and output as units of their own."),
    tensor: int = typer.Option(1, help="GPUs that compute each block together."),
    gpu: str = typer.Option(
        "H100", help="V100, A100 40GB, A100, L40S, H100, H200, B200, MI300X or RTX 4090."
    ),
    link: str = typer.Option(
        "InfiniBand NDR", help="Between nodes: InfiniBand NDR or HDR, Ethernet 100G, 25G or 10G."
    ),
    inside: str = typer.Option(
        "", help="In a node: NVLink 4, PCIe 5, ...; by default the usual one of --gpu."
    ),
    gpus_per_node: int = typer.Option(8, help="GPUs in a node."),
    field: list[str] = typer.Option(  # noqa: B008  as typer wants it
        [], help="NAME=VALUE: adds to a config.json what it lacks. Can be repeated."
    ),
) -> None:
    """Say what a model needs on each GPU, what a step sends, and what bounds it.

    No GPU is needed: bytes follow from the shapes of the parameters.
    The optimizer is AdamW.

    The exit code is 0 if the model fits, 1 if it does not, 2 for bad input.
    """
    from ddp_workbook.planning.config import field_value
    from ddp_workbook.planning.plan import plan as make_plan
    from ddp_workbook.planning.sizes import PlanRefused

    try:
        made = make_plan(
            parameters,
            gpus,
            memory or None,
            strategy=strategy,
            precision=precision,
            batch=batch,
            global_batch=global_batch or None,
            sequence=sequence,
            checkpoint=checkpoint,
            offload=offload,
            split_root=split_root,
            tensor=tensor,
            gpu=gpu,
            link=link,
            inside=inside or None,
            gpus_per_node=gpus_per_node,
            fields=dict(map(field_value, field)),
        )
    except PlanRefused as refused:
        raise typer.BadParameter(str(refused)) from None
    typer.echo(made)
    raise typer.Exit(0 if made.fits else 1)
