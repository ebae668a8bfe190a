"""What is wrong with a training script, where its step goes, and what a model needs."""

import typer

from manyranks.command_line import version_option
from manyranks.planning import command as plan
from manyranks.recording import command as profile
from manyranks.script_doctor import command as doctor

ROOMS = (profile, doctor, plan)

app = typer.Typer(no_args_is_help=True, help=__doc__, callback=version_option)
for room in ROOMS:
    app.add_typer(room.app)
