"""`doctor`: what is wrong with a training script."""

import json
from typing import Annotated

import typer

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
def doctor(
    script: OptionalScript = None,
    *,
    module: Module = None,
    ranks: Annotated[int, typer.Option(help="How many ranks, 2 or more.")] = 2,
    batches: Annotated[int, typer.Option(help="Batches of each pass over a DataLoader.")] = 64,
    passes: Annotated[int, typer.Option(help="Passes over a DataLoader.")] = 12,
    steps: Annotated[int, typer.Option(help="Steps of each optimizer.")] = 384,
    seconds: Annotated[float, typer.Option(help="Seconds from the first step on.")] = 20,
    as_if_gpus: AsIfGPUs = True,
    network: Network = None,
    timeout: Timeout = 120,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    github: Annotated[
        bool, typer.Option("--github", help="Annotate a change on GitHub with the findings, too.")
    ] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Leave out what this rule finds; may be given again."),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            "--explain", metavar="RULE", help="Run nothing: say what a rule means (all: list them)."
        ),
    ] = None,
) -> None:
    """Run a training script on a few CPU ranks, and say what is wrong.

    What it writes by Python goes to a folder that is thrown away; what a
    library writes without Python, or a program that it starts, is real.
    The exit code is 1 if something is wrong or likely to be, 2 if it
    cannot be run.
    """
    if rule is not None:
        from manyranks.script_doctor.explanations import explain

        with plain_errors():
            typer.echo(explain(rule))
        return
    words = script_words(script, module)
    if not words:
        raise typer.BadParameter("name a script, or a rule with --explain.", param_hint="SCRIPT")
    if as_json and github:
        raise typer.BadParameter("--json prints JSON alone; leave one of the two out.")
    from manyranks.script_doctor.diagnosis import doctor as run_doctor
    from manyranks.script_doctor.workflow_commands import workflow_commands

    with plain_errors():
        report = run_doctor(
            *words,
            ranks=ranks,
            batches=batches,
            passes=passes,
            steps=steps,
            seconds=seconds,
            as_if_gpus=as_if_gpus,
            network=network,
            timeout=timeout,
            ignore=ignore or (),
        )
    typer.echo(json.dumps(report.as_dict(), indent=2) if as_json else str(report))
    for command in workflow_commands(report) if github else ():
        typer.echo(command)
    raise typer.Exit(report.exit_code)
