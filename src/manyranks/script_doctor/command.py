"""`doctor`: what is wrong with a training script."""

import json
from typing import Annotated

import typer

from manyranks.command_line import Network, Script, Timeout, plain_errors

app = typer.Typer()


@app.command()
def doctor(
    script: Script,
    *,
    ranks: Annotated[int, typer.Option(help="How many ranks, 2 or more.")] = 2,
    batches: Annotated[int, typer.Option(help="Batches of each pass over a DataLoader.")] = 64,
    passes: Annotated[int, typer.Option(help="Passes over a DataLoader.")] = 3,
    steps: Annotated[int, typer.Option(help="Steps of each optimizer.")] = 192,
    seconds: Annotated[float, typer.Option(help="Seconds from the first step on.")] = 20,
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
    from manyranks.script_doctor.diagnosis import doctor as run_doctor

    with plain_errors():
        report = run_doctor(
            *script,
            ranks=ranks,
            batches=batches,
            passes=passes,
            steps=steps,
            seconds=seconds,
            as_if_gpus=as_if_gpus,
            network=network,
            timeout=timeout,
        )
    typer.echo(json.dumps(report.as_dict(), indent=2) if as_json else str(report))
    raise typer.Exit(report.exit_code)
