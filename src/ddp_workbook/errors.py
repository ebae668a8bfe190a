"""The errors that the workbook raises on purpose: pages to read, without its own frames."""

from collections.abc import Sequence
from enum import Enum
from typing import Any


class WorkbookError(Exception):
    """An error whose text is written for the reader; IPython shows that text and nothing else."""

    def explain(self) -> str:
        """The whole text: what happened, and what to do about it."""
        return str(self)

    def _render_traceback_(self) -> list[str]:
        """Lines for IPython's traceback display (its documented hook for custom errors)."""
        return [
            f"{type(self).__name__}: {line}" if i == 0 else line
            for i, line in enumerate(self.explain().splitlines() or [""])
        ]


class LaunchRefused(WorkbookError, ValueError):
    """The launch cannot work as asked; said before any process was started."""


class Unsendable(Exception):
    """An object that cannot travel between processes; the message says which and why."""


class ScriptRunsAgain(Exception):
    """In a rank: the script that launches was imported, and its launch is not guarded."""


class RankFailed(WorkbookError, RuntimeError):
    """A rank failed: `rank`, `reason` and `traceback` (the reader's own frames) say which and how.

    `kind` is the name of the Python error's type, "" where there was none, and `arguments` are
    those of its arguments that are texts. `returncode` is the exit status of a rank that died
    without a Python error: positive for `os._exit(n)`, negative for a signal, as in `subprocess`;
    None where there was a Python error. `positions` tell where the ranks stood: the one that
    failed, and if it waited for another, all. `missed` are the calls that do not match, each a
    `diagnostics.mismatches.Mismatch`, whose text says who came to which collective.
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
        missed: Sequence = (),
    ):
        super().__init__(page)
        self.rank, self.reason, self.kind = rank, reason, kind
        self.arguments = tuple(arguments)
        self.traceback, self.returncode = traceback, returncode
        self.positions, self.missed = list(positions), list(missed)


class Proof(Enum):
    """How a launch knows that its ranks hang; the value is for people."""

    TIME = "the time limit"
    STANDSTILL = "all unfinished ranks wait for each other"
    IDLE = "nothing happens, and not all unfinished ranks wait for each other"
    PROCESSOR_TIME = "a rank computes without an end"


class RanksHung(RankFailed, TimeoutError):
    """The ranks did not finish in time, or cannot; `positions` tell for each rank where it stood.

    `proof` says how the launch knows, `seconds` is its measure: the time limit, how long nothing
    had happened, or the processor time that `rank` had used. Of the other proofs `rank` is None.
    """

    def __init__(
        self, page: str, *, proof: Proof = Proof.TIME, seconds: float = 0.0, **failure: Any
    ):
        super().__init__(page, **failure)
        self.proof, self.seconds = proof, seconds


class TooBusyToTell(WorkbookError):
    """The ranks neither finished nor proved to hang, for `seconds`: the machine is too busy."""

    def __init__(self, page: str, *, seconds: float = 0.0):
        super().__init__(page)
        self.seconds = seconds


class LaunchInterrupted(KeyboardInterrupt):
    """The reader interrupted a launch; its ranks have ended, the text says where they stood."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()
