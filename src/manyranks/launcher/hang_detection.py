"""Hung or merely slow: decided by what the ranks have done, not by a clock.

On a machine that many people share, a right answer may take a minute, while a wrong one must be
stopped soon. So a launch that is judged by evidence ends as hung once that is proven, and goes on
otherwise.
"""

import contextlib
import linecache
import os
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from manyranks.diagnostics import flight_recorder
from manyranks.diagnostics.evidence import Evidence, State
from manyranks.diagnostics.positions import COMMUNICATION, position
from manyranks.diagnostics.user_code import is_own
from manyranks.errors import Proof
from manyranks.launcher import activity
from manyranks.launcher.activity import Reading
from manyranks.launcher.rank_handle import RankHandle

FIRST_LOOK_S = 0.2  # seconds from the start, when most launches have ended
SAMPLE_INTERVAL_S = (
    0.1  # seconds between two looks; one costs 0.02 ms for a running rank, 0.15 for a still one
)
STALL_BEFORE_QUERY_S = 0.2  # seconds of standstill before the ranks are asked where they stand
MAX_READINGS = 20  # looks that are kept
SETTLE_WINDOW_S = 0.4  # last seconds in which every thread must have slept or had its turns
MULTIPLE_POLLERS_FACTOR = (
    3  # times as long if several ranks poll: send and recv leave no trace on gloo
)
CPU_TIME_INTERVAL_S = 0.5  # seconds between two sums of processor time
RETURNED_RANK_EXIT_S = 2.0  # seconds until a rank that has returned closes its connections
SAMPLE_INTERVAL_NO_SCHEDSTAT_S = 0.5  # EVERY without turn counts: psutil goes through all processes
MIN_STALL_NO_SCHEDSTAT_S = (
    5.0  # seconds of standstill at least where queues for a processor cannot be seen
)
# Functions of torch in which a rank connects to all others.
CONNECTING_CALLS = ("init_process_group", "new_group")
C10D_FILE = os.path.join("torch", "distributed", "distributed_c10d.py")
STANDARD_LIBRARY = os.path.join(sysconfig.get_path("stdlib"), "")
# Hosts that look for each other: torchrun's rendezvous pauses a second between two looks.
ELASTIC_FOLDER = os.path.join("torch", "distributed", "elastic", "")
LIBRARIES = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib")
)  # below the standard library's folder


@dataclass(frozen=True)
class HangLimits:
    """How much evidence proves a hang; all times in seconds.

    Meant for checks, whose ranks compute on the CPU for a second or two and talk over loopback. A
    GPU or a slow network may be working while all ranks stand still. Where queues for a processor
    cannot be seen (macOS, Windows), each standstill must last 5 s, and ranks that a busy machine
    keeps waiting that long look hung.
    """

    standstill: float = 0.4  # all unfinished ranks wait for one another
    new_group: float = 2.0  # the same, with one of them in new_group, which asks the store
    connecting: float = 20.0  # one is in init_process_group; a slow name server takes 10
    idle: float = 5.0  # one of them waits for something else: a sleep, a lock, a file
    polling: float = 10.0  # one of them polls, the others stand still
    processor: float = 4.0  # of processor time in one phase, most likely in the worker
    slow: float = 5.0  # of wall time until `on_slow` is called once, unless all ranks stand
    patience: float = 300.0  # of wall time until HangUndecided is raised
    on_slow: Callable[[], None] | None = None


@dataclass(frozen=True)
class ProvenHang:
    """A proven hang: by what, and how many seconds it lasted or took of processor time."""

    proof: Proof
    seconds: float
    rank: int | None = None  # the rank whose processor time it is


class HangDetector:
    """Watches the unfinished ranks of one launch until they are proven hung."""

    def __init__(self, limits: HangLimits):
        self.limits, self.start_time = limits, time.monotonic()
        self.next = self.start_time + FIRST_LOOK_S
        self.slow_at: float | None = self.start_time + limits.slow
        self.processor = CpuTimeDetector(limits)
        self.standstill = StallDetector(limits)
        self.polling = PollingDetector(limits)

    def look(self, handles: Sequence[RankHandle], ask: Callable[[], None]) -> ProvenHang | None:
        """Look if it is time; `ask` makes the unfinished ranks say where they stand."""
        if time.monotonic() < self.next or any(handle.evidence.failed for handle in handles):
            return None
        hang = None
        with contextlib.suppress(OSError):  # a rank or one of its threads has just ended
            hang = (
                self.processor.look(handles)
                or self.standstill.look(handles, ask)
                or self.polling.look(handles, ask)
            )
        self.next = time.monotonic() + (
            SAMPLE_INTERVAL_S if activity.HAS_SCHEDSTAT else SAMPLE_INTERVAL_NO_SCHEDSTAT_S
        )
        late = self.slow_at is not None and time.monotonic() >= self.slow_at
        if not hang and late and not self.standstill.readings:  # standing is no sign of a load
            self.slow_at = None
            if self.limits.on_slow:
                self.limits.on_slow()
        return hang


class CpuTimeDetector:
    """A rank that never ends because it never stops computing."""

    def __init__(self, limits: HangLimits):
        self.limits, self.next = limits, 0.0
        self.phase_starts: dict[int, tuple[State, float]] = {}  # processor time at its start

    def look(self, handles: Sequence[RankHandle]) -> ProvenHang | None:
        """The first rank that has used up its processor time, if any."""
        if time.monotonic() < self.next:
            return None
        self.next = time.monotonic() + CPU_TIME_INTERVAL_S
        for handle in unfinished(handles):
            seconds, phase = activity.cpu_time(handle.pid), handle.evidence.phase
            if self.phase_starts.get(handle.rank, (None, 0))[0] is not phase:
                self.phase_starts[handle.rank] = (phase, seconds)
            seconds -= self.phase_starts[handle.rank][1]
            if seconds > self.limits.processor:
                return ProvenHang(Proof.PROCESSOR_TIME, seconds, handle.rank)
        return None


class StallDetector:
    """All unfinished ranks stand: none runs, and none waits for a processor or a disk."""

    def __init__(self, limits: HangLimits):
        self.limits = limits
        self.glances: dict[int, activity.WorkerThreadState] = {}
        self._restart()

    def _restart(self) -> None:
        self.readings: list[dict[int, Reading]] = []  # since all stand still
        self.places: dict[int, tuple] | None = None  # where they stood when first asked
        self.query_time = 0.0

    def look(self, handles: Sequence[RankHandle], ask: Callable[[], None]) -> ProvenHang | None:
        """A proof if all have stood long enough, in the same places before and after."""
        if not self._all_stand(handles) or self._duration() < STALL_BEFORE_QUERY_S:
            return None
        if self.places is None:
            self._ask(handles, ask)
            return None
        if (
            self._duration() < required_stall_s(handles, self.limits)
            or not self._is_settled()
            or activity.store_is_queued()
        ):
            return None
        if time.monotonic() - self.query_time < self.limits.standstill:
            return None
        before = self.places
        self._ask(handles, ask)
        if not self._all_stand(handles) or self.places != before:
            return None
        return ProvenHang(proof(handles), self._duration())

    def _ask(self, handles: Sequence[RankHandle], ask: Callable[[], None]) -> None:
        ask()
        self.query_time = time.monotonic()
        self.places = {handle.rank: place(handle.evidence) for handle in unfinished(handles)}

    def _duration(self) -> float:
        """Seconds that this standstill has lasted."""
        first, last = (next(iter(self.readings[i].values())).time for i in (0, -1))
        return last - first

    def _all_stand(self, handles: Sequence[RankHandle]) -> bool:
        """Look at the workers' threads and, if these stand, at all others; note the readings."""
        glances = {
            handle.rank: activity.read_worker_thread(handle.pid) for handle in unfinished(handles)
        }
        changed, self.glances = glances != self.glances, glances
        if changed or not glances:
            self._restart()
            return False
        now = {h.rank: activity.read(h.pid, h.listener) for h in unfinished(handles)}
        if any(reading.busy for reading in now.values()):
            self._restart()
            return False
        if self.readings and not all(
            activity.no_progress(self.readings[-1][rank], now[rank]) for rank in now
        ):
            self._restart()
        self.readings.append(now)
        del self.readings[1:-MAX_READINGS]
        return True

    def _is_settled(self) -> bool:
        """True if lately no thread of any rank has waited for a processor that it needs."""
        now = self.readings[-1]
        return any(
            all(now[rank].time - before[rank].time >= SETTLE_WINDOW_S for rank in now)
            and all(activity.no_starvation(before[rank], now[rank]) for rank in now)
            for before in self.readings[:-1]
        )


class PollingDetector:
    """A rank polls in one function, and nothing comes of it."""

    def __init__(self, limits: HangLimits):
        self.limits = limits
        self.stretch = limits.polling / 2  # seconds; two in a row in the same functions are a proof
        self.readings: dict[int, Reading] = {}  # at the start of this stretch
        self.since = 0.0  # when all ranks began to do next to nothing
        self.disk = False  # whether one waited for a disk meanwhile
        self.several = False  # whether more than one moved: they may be working with each other
        self.functions: dict[int, tuple] | None = None

    def look(self, handles: Sequence[RankHandle], ask: Callable[[], None]) -> ProvenHang | None:
        """A proof if all have stood or polled for long, in the same functions all the time."""
        running = unfinished(handles)
        if {handle.rank for handle in running} != self.readings.keys():
            self._restart(running)
            return None
        self.disk |= any(activity.read_worker_thread(handle.pid).state == "D" for handle in running)
        if any(time.monotonic() - r.time < self.stretch for r in self.readings.values()):
            return None
        now = {handle.rank: activity.read(handle.pid, handle.listener) for handle in running}
        pairs = [(self.readings[rank], now[rank]) for rank in now]
        moving = [pair for pair in pairs if not activity.no_progress(*pair)]
        if self.disk or not (
            all(activity.idles(*pair) for pair in pairs)
            or (activity.HAS_SCHEDSTAT and len(moving) == 1 and activity.polls(*moving[0]))
        ):
            self._restart(running)
            return None
        self.readings = now
        self.several |= len(moving) > 1
        ask()
        functions = {h.rank: function(h.evidence) for h in unfinished(handles)}
        if self.functions is None or functions != self.functions:
            self.functions, self.since = functions, time.monotonic() - self.stretch
            return None
        least = self.limits.polling * (MULTIPLE_POLLERS_FACTOR if self.several else 1)
        duration = time.monotonic() - self.since
        enough = duration >= max(least, required_stall_s(handles, self.limits))
        return ProvenHang(proof(handles), duration) if enough else None

    def _restart(self, running: Sequence[RankHandle]) -> None:
        self.disk, self.several, self.functions = False, False, None
        self.readings = {h.rank: activity.read(h.pid, h.listener) for h in running}


def connects(rank: Evidence) -> bool:
    """True for a rank that has not reached its worker, or is making a process group in it."""
    if rank.phase in (State.STARTING, State.IMPORTING):
        return True
    return any(
        file.endswith(C10D_FILE) and name in CONNECTING_CALLS for file, _, name in rank.stack
    )


def unfinished(handles: Sequence[RankHandle]) -> list[RankHandle]:
    """The ranks without an outcome."""
    return [handle for handle in handles if handle.outcome is None]


def required_stall_s(handles: Sequence[RankHandle], limits: HangLimits) -> float:
    """Seconds that a standstill must last: the longest that any of the ranks needs."""
    least = [required_stall_of_rank_s(handle.evidence, limits) for handle in unfinished(handles)]
    leaving = any(handle.outcome and not handle.ended for handle in handles)
    return max(
        *least,
        RETURNED_RANK_EXIT_S if leaving else 0.0,
        0.0 if activity.HAS_SCHEDSTAT else MIN_STALL_NO_SCHEDSTAT_S,
    )


def proof(handles: Sequence[RankHandle]) -> Proof:
    """What a standstill of the unfinished ranks proves."""
    communicate = all(waits_for_others(handle.evidence) for handle in unfinished(handles))
    return Proof.DEADLOCK if communicate else Proof.IDLE


def required_stall_of_rank_s(rank: Evidence, limits: HangLimits) -> float:
    """Seconds that this rank, and all others, must stand in place to count as hung."""
    calls = {name for file, _, name in rank.stack if file.endswith(C10D_FILE)}
    if rank.phase is State.STARTING or "init_process_group" in calls:
        return limits.connecting
    if "new_group" in calls:
        return limits.new_group
    waits = waits_for_others(rank) and "monitored_barrier" not in calls  # it ends by itself
    return limits.standstill if waits else limits.idle


def waits_for_others(rank: Evidence) -> bool:
    """True if the rank stands in a call that communicates, in its worker or in the machinery."""
    if rank.phase is not State.WORKING or not rank.stack:
        return False
    innermost = rank.stack[0][0]
    if innermost.startswith(STANDARD_LIBRARY) and not innermost.startswith(LIBRARIES):
        return False  # a lock, a queue, a socket, a process: it may wait for anything
    if ELASTIC_FOLDER in innermost:
        return False
    place = position(rank)
    if place.file:
        # The wait of a Work has no frame; with arguments it may end by itself.
        return place.state is State.WAITING or (not place.call and ".wait()" in place.text)
    file, line, _ = rank.stack[0]
    waits = any(part in file for file, _, _ in rank.stack for part in COMMUNICATION)
    return waits or place.state is State.RETURNED or ".wait(" in linecache.getline(file, line)


def place(rank: Evidence) -> tuple:
    """What must be the same before and after: the stack, and the calls entered and finished."""
    return tuple(rank.stack), flight_recorder.progress(rank.record)


def function(rank: Evidence) -> tuple:
    """The reader's innermost function (else the innermost), and the calls entered and finished."""
    own = [frame for frame in rank.stack if is_own(frame[0])]
    innermost = [(file, name) for file, _, name in own or rank.stack][:1]
    return (*innermost, flight_recorder.progress(rank.record))
