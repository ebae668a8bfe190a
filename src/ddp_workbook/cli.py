"""The workbook on this machine, tools for a training program of your own, and the workshop."""

import typer

from ddp_workbook.program import command as new
from ddp_workbook.workshop import commands, grade_command, time_command
from ddp_workbook.workshop.room import command as room_command
from manyranks.cli import ROOMS
from manyranks.command_line import version_option

app = typer.Typer(no_args_is_help=True, help=__doc__, callback=version_option)
for part in (commands, grade_command, time_command, room_command, new, *ROOMS):
    app.add_typer(part.app)
