"""The instructor's commands: `ddp-workbook check` says whether a machine is ready."""

import time
from collections.abc import Callable

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)


@app.callback()
def commands() -> None:
    """Commands for those who run the workshop."""


@app.command()
def check(
    ranks: int = typer.Option(4, min=1, help="How many ranks to try."),
) -> None:
    """Show what this machine has, try what every notebook needs; exit with 1 if that fails."""
    console = Console()
    console.print(machine_summary())
    failed = [name for name, trial in trials(ranks).items() if not report(console, name, trial)]
    if failed:
        console.print(f"[bold]Not ready:[/bold] {', '.join(failed)}.")
        raise typer.Exit(1)
    console.print("[bold]Ready.[/bold] Start the workbook with `make lab`.")


def machine_summary() -> Table:
    """The machine's table as chapter 00 shows it, for the terminal."""
    from ddp_workbook.notebook.machine import machine_table

    frame = machine_table()
    table = Table(*frame.columns, title="This machine", title_justify="left")
    for row in frame.itertuples(index=False):
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


def report(console: Console, name: str, trial: Callable[[], str]) -> bool:
    """Run one trial and print a line on it; True if it worked."""
    try:
        console.print(f"ok      {name}: {escape(trial())}")
    except Exception as error:
        console.print(f"[bold]failed[/bold]  {name}: {escape(str(error))}")
        return False
    return True


def trials(ranks: int) -> dict[str, Callable[[], str]]:
    """What a notebook needs of a machine, by name: each returns a sentence, or raises."""
    return {"data": try_data, "ranks": lambda: try_ranks(ranks), "JupyterLab": try_jupyterlab}


def try_data() -> str:
    """Read the digits."""
    from ddp_workbook.digits import DigitsDataset

    return f"{len(DigitsDataset()):,} digits"


def try_ranks(ranks: int) -> str:
    """Let `ranks` processes meet twice, since the first launch also starts the fork server."""
    first, warm = timed_meeting(ranks), timed_meeting(ranks)
    return f"{ranks} ranks met in {warm:.2f} s (the first time in {first:.2f} s)"


def timed_meeting(ranks: int) -> float:
    """Seconds of one launch; raises RuntimeError where the ranks do not agree on the right sum."""
    from ddp_workbook.launcher.launch import launch

    start = time.perf_counter()
    sums = launch(meet, ranks=ranks)
    if set(sums) != {ranks * (ranks + 1) / 2}:
        raise RuntimeError(f"an all-reduce of 1 to {ranks} gave {sums}")
    return time.perf_counter() - start


def meet() -> float:
    """In a rank: the sum of 1 to world size, by one all-reduce."""
    import torch
    import torch.distributed as dist

    from ddp_workbook.launcher.process_group import set_up

    device = set_up(bare=False)
    number = torch.tensor([dist.get_rank() + 1.0], device=device)
    dist.all_reduce(number)
    return number.item()


def try_jupyterlab() -> str:
    """Find JupyterLab and a Python kernel."""
    import jupyterlab
    from jupyter_client.kernelspec import KernelSpecManager

    if "python3" not in KernelSpecManager().find_kernel_specs():
        raise RuntimeError("no kernel python3; try `python -m ipykernel install --sys-prefix`")
    return f"version {jupyterlab.__version__}"
