"""Observes what a rank prints: numbers that no other rank had a part in, lines that all print."""

import builtins
import logging
import sys
from collections.abc import Callable
from typing import Any

from manyranks.script_doctor.notes import Notes, lines
from manyranks.script_doctor.patches import Patches

MAX_PRINTS = 200  # that are noted, at most
MAX_TEXT = 300  # characters of each


class PrintObserver:
    """Notes what print and logging say on one rank, with the line."""

    def __init__(self, notes: Notes):
        self.notes, self.count = notes, 0

    def install(self, patches: Patches) -> None:
        """Put the observer in place."""
        patches.replace(builtins, "print", self._print)
        patches.replace(logging.Logger, "handle", self._log)

    def _print(self, call: Callable, *values: Any, **options: Any) -> None:
        if options.get("file") not in (None, sys.stdout, sys.stderr):
            call(*values, **options)
            return
        separator = options.pop("sep", None)
        text = (" " if separator is None else separator).join(map(str, values))
        self._note(text, "print")
        call(text, **options)

    def _log(self, handle: Callable, logger: logging.Logger, record: logging.LogRecord) -> None:
        if logger.hasHandlers():
            self._note(record.getMessage(), "log")
        handle(logger, record)

    def _note(self, text: str, by: str) -> None:
        own_lines = lines() if text.strip() and self.count < MAX_PRINTS else []
        if own_lines:
            self.count += 1
            self.notes.write("print", text=text.strip()[:MAX_TEXT], by=by, lines=own_lines)
