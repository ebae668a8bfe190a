"""What is known of one rank: how far it came, how it ended, and the stack on which it stands."""

from dataclasses import dataclass, field
from enum import Enum

Frame = tuple[str, int, str]  # file, line, function


class Phase(Enum):
    """How far a rank's process has come; it announces each phase as it enters it."""

    STARTING = "starting"
    IMPORTING = "importing the worker's file"
    WORKING = "inside the worker"
    RETURNING = "packing and sending its result"
    LEAVING = "ending"


class Ending(Enum):
    """How a rank ended: its worker returned or raised, or the process died."""

    RETURNED = "returned"
    RAISED = "raised"
    DIED = "died"


@dataclass
class Outcome:
    """How a rank ended, and with what.

    `value` holds the packed result, `error` what `exceptions.as_data` made of the exception,
    `returncode` the exit status of a rank that died, which may come a moment later. `joined` tells
    whether it ever joined a process group. `program` is what runs in the process of a rank that
    replaced itself (exec).
    """

    ending: Ending
    time: float  # time.monotonic(), one clock for all processes of a machine
    value: bytes = b""
    error: dict = field(default_factory=dict)
    returncode: int | None = None
    joined: bool = False
    program: str = ""

    @property
    def primary(self) -> bool:
        """False for an ending that another rank's ending explains."""
        if self.ending is Ending.RAISED:
            return not self.error["lost_peer"]
        return self.ending is Ending.DIED


@dataclass
class Evidence:
    """All that the diagnostics know of one rank; the launcher collects it.

    `stack` holds frames, innermost first: the answer to a question, or what `faulthandler` wrote
    (then `dumped` is True). `record` is what `flight_recorder.read` gave; None without an answer.
    """

    rank: int
    phase: Phase = Phase.STARTING
    outcome: Outcome | None = None
    stack: list[Frame] = field(default_factory=list)
    record: dict | None = None
    stopped: bool = False  # halted by a signal

    @property
    def returned(self) -> bool:
        """True once the worker has returned."""
        return self.outcome is not None and self.outcome.ending is Ending.RETURNED

    @property
    def failed(self) -> bool:
        """True once the rank has ended in another way."""
        return self.outcome is not None and not self.returned
