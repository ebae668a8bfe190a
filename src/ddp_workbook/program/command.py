"""`new`: a training program of a reader's own."""

from pathlib import Path
from typing import Annotated

import typer

from manyranks.command_line import OWN_PROGRAM, plain_errors

app = typer.Typer()


@app.command(rich_help_panel=OWN_PROGRAM)
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
