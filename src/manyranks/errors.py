"""The errors that the workbook raises on purpose: text to read, without its own frames."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

from manyranks.wrapping import wrap


class WorkbookError(Exception):
    """An error whose text is written for the reader; IPython shows only that text."""

    def explain(self) -> str:
        """The whole text: what happened, and what to do about it."""
        return str(self)

    def _render_traceback_(self) -> list[str]:
        """Lines for IPython's traceback display (its documented hook for custom errors)."""
        return wrap(f"{type(self).__name__}: {self.explain()}").splitlines()


class LaunchRefused(WorkbookError, ValueError):
    """The launch cannot work as asked; raised before any process was started."""


class Unsendable(Exception):
    """An object that cannot be sent to another process; the message says which and why."""


class TooLargeToSend(Unsendable):
    """There is not enough memory to pickle an object, or to receive it; the message says where."""


class MissingMainGuard(Exception):
    """In a rank: the script that launches was imported, and its launch has no guard."""


class RankFailed(WorkbookError, RuntimeError):
    """A rank failed: `rank`, `reason` and `traceback` (the reader's own frames) say which and how.

    `kind` is the name of the Python error's type, "" if there was none, and `arguments` has its
    arguments that are strings. `returncode` is the exit status of a rank that died without a Python
    error: positive for `os._exit(n)`, negative for a signal, as in `subprocess`; None if there was
    a Python error. `positions` tell where the ranks stood: the one that failed, and all others if
    it waited for one. `mismatches` are the calls that do not match, each a
    `diagnostics.mismatches.Mismatch`, whose text says which rank made which call.
    """

    def __init__(
        self,
        page: str,
        *,
        rank: int | None = None,
        reason: str = "",
        kind: str = "",
        arguments: Sequence[str] = (),
        traceback: str = "",
        returncode: int | None = None,
        positions: Sequence = (),
        mismatches: Sequence = (),
    ):
        super().__init__(page)
        self.rank, self.reason, self.kind = rank, reason, kind
        self.arguments = tuple(arguments)
        self.traceback, self.returncode = traceback, returncode
        self.positions, self.mismatches = list(positions), list(mismatches)


class Proof(Enum):
    """How a launch knows that its ranks hang; the value is for people."""

    TIME = "the time limit"
    DEADLOCK = "all unfinished ranks wait for one another"
    IDLE = "nothing happens, but not all unfinished ranks wait for one another"
    PROCESSOR_TIME = "a rank never stops computing"


class RanksHung(RankFailed, TimeoutError):
    """The ranks did not finish in time, or cannot; `positions` tell for each rank where it stood.

    `proof` says how the launch knows, and `seconds` measures it: the time limit, how long nothing
    had happened, or the processor time that `rank` had used. For other proofs, `rank` is None.
    """

    def __init__(
        self, page: str, *, proof: Proof = Proof.TIME, seconds: float = 0.0, **failure: Any
    ):
        super().__init__(page, **failure)
        self.proof, self.seconds = proof, seconds


class HangUndecided(WorkbookError):
    """The ranks neither finished nor proved to hang, for `seconds`: the machine is too busy."""

    def __init__(self, page: str, *, seconds: float = 0.0):
        super().__init__(page)
        self.seconds = seconds


class LaunchInterrupted(KeyboardInterrupt):
    """The reader interrupted a launch; its ranks have ended, the text says where they stood."""

    def _render_traceback_(self) -> list[str]:
        return wrap(str(self)).splitlines()
