"""What is known of one rank: how far it got, how it ended, and its stack."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from manyranks.diagnostics.handled_errors import HandledError, ThreadError

Frame = tuple[str, int, str]  # file, line, function


class State(Enum):
    """What a rank is doing. Code decides by the state; its value is for people."""

    # How far its process has got: it announces each but the last as it enters it.
    STARTING = "is starting"
    IMPORTING = "is importing the worker's file"
    WORKING = "is outside the worker's own lines"
    RETURNING = "is packing its result"
    LEAVING = "is ending"
    SENDING = "is sending its result,"  # a large one; seen in the kernel, where it arrives
    # How it ended: its worker returned or raised, or the process died.
    RETURNED = "has returned"
    FAILED = "has failed"
    DIED = "has died"
    # What a line of the reader's does while it works.
    WAITING = "waits in"  # a call of torch that communicates
    CALLING = "is in"  # any other call of a library
    COMPILING = "is compiling"
    AT_LINE = "is at"
    SILENT = "does not answer"


@dataclass
class Outcome:
    """How a rank ended, and with what result or error.

    `value` holds the parts of the packed result, `error` the exception as `exceptions.as_data`
    describes it, `returncode` the exit status of a rank that died, which may come a moment later.
    `joined` tells whether the rank ever joined a process group. `exit_frames` holds the frames,
    innermost first, from which the worker left by sys.exit(0). `program` is the program that
    replaced the rank in its process (exec). `at_crash` tells that the stack is that of the thread
    that crashed.
    """

    ending: State
    time: float  # time.monotonic(), one clock for all processes of a machine
    value: list = field(default_factory=list)
    error: dict = field(default_factory=dict)
    returncode: int | None = None
    joined: bool = False
    exit_frames: list[Frame] = field(default_factory=list)
    program: str = ""
    at_crash: bool = False

    @property
    def primary(self) -> bool:
        """False for an ending that another rank's ending explains."""
        if self.ending is State.FAILED:
            return not self.error["lost_peer"]
        return self.ending is State.DIED


@dataclass
class Evidence:
    """All that the diagnostics know about one rank; the launcher collects it.

    `stack` holds the worker's frames, innermost first: the rank's own answer, or what
    `faulthandler` wrote; after a crash in another thread, those of that thread. `record` is the
    result of `flight_recorder.read`; None without an answer. `handled_error` is the error that the
    worker was handling then. `thread_error` is the last one that ended a thread of the worker's.
    `size` is the size in bytes of a result that is being sent.
    """

    rank: int
    phase: State = State.STARTING
    outcome: Outcome | None = None
    stack: list[Frame] = field(default_factory=list)
    record: dict | None = None
    handled_error: HandledError | None = None
    thread_error: ThreadError | None = None
    last_lines: Sequence[str] = ()  # the last lines that it printed
    size: int = 0

    @property
    def end(self) -> Outcome:
        """The outcome of a rank that has one; AssertionError while it runs."""
        assert self.outcome
        return self.outcome

    @property
    def returned(self) -> bool:
        """True once the worker has returned."""
        return self.outcome is not None and self.outcome.ending is State.RETURNED

    @property
    def failed(self) -> bool:
        """True once the rank has ended in another way."""
        return self.outcome is not None and not self.returned
