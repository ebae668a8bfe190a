"""Where a rank stands: one line of the reader's code and the call there, from its stack."""

import linecache
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from manyranks.diagnostics.evidence import Evidence, Frame, State
from manyranks.diagnostics.handled_errors import HandledError
from manyranks.diagnostics.user_code import FINISHED_WAITS, is_machinery, is_own, short

# Frames between the reader's line and the function that the line calls.
WRAPPERS = (
    "c10d_logger.py",
    "_contextlib.py",
    "typing_extensions.py",
    "_decorators.py",
    "nn/modules/module.py",  # model(x) is called forward
    "_fsdp_common.py",  # fully_shard's hooks, including the one that gathers
    "_dynamo/eval_frame.py",
    "_fsdp_state.py",
)
# Code of torch in which a rank waits for other ranks.
COMMUNICATION = tuple(
    f"{os.sep}torch{os.sep}" + place.replace("/", os.sep)
    for place in ("distributed/", "nn/parallel/", "autograd/", "_tensor.py")
)
# Not once it has compiled.
COMPILING = os.sep + os.path.join("torch", "_dynamo", "convert_frame.py")
POINT_TO_POINT_CALLS = {  # not collectives: the other rank makes the opposite call
    *("send", "isend", "send_object_list", "recv", "irecv", "recv_object_list"),
    "batch_isend_irecv",
}
WAITS_FOR_A_TRANSFER = re.compile(r"\b(isend|irecv|batch_isend_irecv)\(.*\.wait\(")
MAX_LINE_CHARS = 80  # characters of the reader's line on the page
END_STATES = frozenset({State.RETURNED, State.FAILED, State.DIED})
RESULT_STATES = frozenset({State.RETURNING, State.SENDING})


@dataclass
class Position:
    """One rank's place: its state, the reader's line if there is one, and what that line calls.

    `size` is the size in bytes of the result that the rank is sending.
    """

    rank: int
    state: State
    file: str = ""
    line: int = 0
    call: str = ""  # the library's function that the reader's line called, if any
    source: str = ""  # the file of that function
    handled_error: HandledError | None = (
        None  # the error that the rank handles there, or did as it failed
    )
    size: int = 0

    @property
    def doing(self) -> str:
        """The state in words: "waits in all_reduce"."""
        words = self.state.value
        if self.state is State.SENDING:
            return f"{words} {megabytes(self.size)}"
        return f"{words} {self.call}" if self.state in (State.WAITING, State.CALLING) else words

    @property
    def ended(self) -> bool:
        """True for a rank that has gone, or that only waits to be let go."""
        return self.state in END_STATES

    @property
    def communicates(self) -> bool:
        """True if the rank stands in a call that waits for other ranks."""
        return self.state is State.WAITING or self.waits_for_a_work

    @property
    def waits_for_a_work(self) -> bool:
        """True in `work.wait()`, which has no frame; an Event, a Condition or a Popen has one."""
        return self.state is State.AT_LINE and ".wait(" in self.text

    @property
    def is_point_to_point(self) -> bool:
        """True if the rank waits in a call of TRANSFERS, or its line waits for one."""
        waits = self.waits_for_a_work and WAITS_FOR_A_TRANSFER.search(self.text)
        return self.call in POINT_TO_POINT_CALLS or bool(waits)

    @property
    def text(self) -> str:
        """The text of the reader's line; "" if there is none."""
        return text_of(self.file, self.line)

    @property
    def place(self) -> str:
        """ "train.py:12  dist.all_reduce(x)", or "" """
        return line_in_words(self.file, self.line)


def text_of(file: str, line: int) -> str:
    """The text of a line, as its file is now or as a rank ran it; "" without a file."""
    if not file:
        return ""
    linecache.checkcache(file)
    return linecache.getline(file, line).strip()


def line_in_words(file: str, line: int) -> str:
    """ "train.py:12  dist.all_reduce(x)"; "" without a file."""
    if not file:
        return ""
    text = text_of(file, line)
    text = text if len(text) <= MAX_LINE_CHARS else text[: MAX_LINE_CHARS - 1] + "…"
    return f"{short(file)}:{line}  {text}".rstrip()


def megabytes(size: int) -> str:
    """A number of bytes in words: "400 MB"."""
    return f"{size / 1e6:,.0f} MB"


def position(evidence: Evidence) -> Position:
    """Where one rank stands, from its outcome or its stack."""
    if evidence.outcome is not None:
        handled_error = evidence.outcome.error.get("handled_error")
        return Position(evidence.rank, evidence.outcome.ending, handled_error=handled_error)
    if evidence.stack:
        return replace(position_from_stack(evidence), handled_error=evidence.handled_error)
    if evidence.phase is State.SENDING:  # an answer would come behind the result
        return Position(evidence.rank, State.SENDING, size=evidence.size)
    silent = evidence.phase is not State.STARTING
    return Position(evidence.rank, State.SILENT if silent else State.STARTING)


def position_from_stack(evidence: Evidence, frames: Sequence[Frame] | None = None) -> Position:
    """What the reader's innermost line is doing, from frames (innermost first)."""
    frames = evidence.stack if frames is None else frames
    index = next((i for i, (file, _, _) in enumerate(frames) if is_own(file)), None)
    if index is None:
        is_finished = any((file, name) in FINISHED_WAITS for file, _, name in frames)
        state = State.RETURNED if is_finished else evidence.phase
        return Position(evidence.rank, state, size=evidence.size)
    file, line, _ = frames[index]
    inside = [frame for frame in frames[:index] if not is_machinery(frame[0])]
    outer = (frame for frame in reversed(inside) if not frame[0].endswith(WRAPPERS))
    source, _, callee = next(outer, ("", 0, ""))
    if callee == "__init__":  # name a class by its module: "distributed" is DDP
        callee = os.path.splitext(os.path.basename(inside[-1][0]))[0]
    if not callee:
        return Position(evidence.rank, State.AT_LINE, file, line)
    if any(f.endswith(COMPILING) for f, _, _ in inside):
        return Position(evidence.rank, State.COMPILING, file, line)
    waits = any(place in f for f, _, _ in inside for place in COMMUNICATION)
    waits = waits and not callee.startswith(("get_", "is_"))  # these only ask
    state = State.WAITING if waits else State.CALLING
    return Position(evidence.rank, state, file, line, callee, source)
