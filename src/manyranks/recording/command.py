"""`profile`: where a step of a training script goes."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from manyranks.command_line import (
    OWN_PROGRAM,
    AsIfGPUs,
    Module,
    Network,
    OptionalScript,
    ScriptCommand,
    Timeout,
    plain_errors,
    script_words,
)

app = typer.Typer()


@app.command(cls=ScriptCommand, rich_help_panel=OWN_PROGRAM)
def profile(
    script: OptionalScript = None,
    *,
    module: Module = None,
    ranks: Annotated[int, typer.Option(min=1, help="How many ranks.")] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Steps to look at, after the first.")] = 5,
    network: Network = None,
    as_if_gpus: AsIfGPUs = True,
    timeout: Timeout = 600,
    to: Annotated[
        Path | None, typer.Option(help="Also write a file of all ranks for Perfetto, here.")
    ] = None,
) -> None:
    """Run a training script on a few ranks, and say where a step goes.

    Computing, loading data, communication that nothing hides, waiting
    for the last rank. The exit code is 2 if the script cannot be run.
    """
    from manyranks.recording.timeline import timeline
    from manyranks.recording.traces import PARTS

    words = script_words(script, module)
    if not words:
        raise typer.BadParameter("name a script, or a module with -m.", param_hint="SCRIPT")
    with plain_errors():
        result = timeline(
            *words,
            ranks=ranks,
            steps=steps,
            network=network,
            as_if_gpus=as_if_gpus,
            timeout=timeout,
        )
        path = result.save(to) if to else None
    table = Table(title="milliseconds of a step, mean over the steps")
    for name in ("rank", *PARTS):
        table.add_column(name, justify="right")
    for rank, row in result.parts.groupby("rank")[list(PARTS)].mean().iterrows():
        table.add_row(str(rank), *(f"{1e3 * row[part]:.1f}" for part in PARTS))
    Console().print(table)
    typer.echo(result.describe())
    if path:
        typer.echo(f"{path}: open it at ui.perfetto.dev")
