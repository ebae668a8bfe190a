"""What is wrong with a training script, where its step goes, and what a model needs."""

import typer

from manyranks.planning import command as plan
from manyranks.recording import command as profile
from manyranks.script_doctor import command as doctor

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
for room in (profile, doctor, plan):
    app.add_typer(room.app)
