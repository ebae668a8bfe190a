"""Findings as workflow commands of GitHub Actions, which shows them at their lines of a change.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

import os
from collections.abc import Iterator

from manyranks.script_doctor.diagnosis import DoctorReport
from manyranks.script_doctor.facts import LIKELY, NOTE, WRONG

COMMANDS = {WRONG: "error", LIKELY: "warning", NOTE: "notice"}


def workflow_commands(report: DoctorReport) -> Iterator[str]:
    """A command for each finding."""
    for finding in report.findings:
        first = finding.lines[0] if finding.lines else f"{report.script}:"
        file, _, line = first.rpartition(":")
        # A line has the name of its file alone; only of the script the path is known.
        if file == report.script and report.path:
            file = os.path.relpath(report.path)
        properties = {"file": file, "line": line, "title": finding.rule}
        words = ",".join(f"{name}={escaped(value)}" for name, value in properties.items() if value)
        message = escaped(f"{finding.fact} {finding.meaning}", of_property=False)
        yield f"::{COMMANDS[finding.level]} {words}::{message}"


def escaped(text: str, of_property: bool = True) -> str:
    """The text with what would end a command, or a property of it, written as GitHub reads it."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if of_property else text
