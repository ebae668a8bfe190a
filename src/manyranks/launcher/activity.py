"""What the threads of a rank have done, from the kernel's scheduling counters.

Linux counts each thread's turns on a processor and how long they took. A thread that sleeps gets no
turn; one that waits for a processor shows as runnable. So however busy the machine is, a thread
that got no turn and is not runnable did nothing. Measured with gloo on 2 cores, beside 0, 6 and 20
busy loops: a deadlocked rank gets no turn, except for gloo's own event loop, which polls every
10 ms for 0.03 ms and queues for up to 150 ms a second. On other systems, and on a Linux without
these counters, only processor time is known.
"""

import contextlib
import os
import time
from dataclasses import dataclass
from typing import NamedTuple

import psutil

NANO = 1e-9
STORE = b"(pt_tcpstore"  # how the name of the store's thread begins (torch 2.13)
MAX_PROCESSES = 100  # to look at for one rank
# A thread that polls gets at least MIN_POLL_TURNS turns while watched, on average
# no longer than SHORT_TURN_S.
MIN_POLL_TURNS = 3
SHORT_TURN_S = 0.0002  # seconds
# Threads other than the worker's that use more than this share of a processor do work.
WORK_SHARE = 0.05
NOISE_S = 0.005  # seconds of processor time that never count as work
MAX_POLLING_SHARE = 0.1  # the largest share of a processor that polling takes
SHORT_WORKER_TURN_S = 0.0005  # seconds; a computation keeps its processor for 1 to 3 ms


class WorkerThreadState(NamedTuple):
    """The state of the worker's own thread, which is cheap to read."""

    turns: int  # on a processor, so far
    state: str  # R runs or queues, S sleeps, D waits for a disk, T is stopped; "" unknown


class ThreadStats(NamedTuple):
    """One thread of a rank or of a process that it started."""

    cpu_s: float  # seconds on a processor
    queue_s: float  # seconds in the queue for one; added when it gets its turn
    turns: int
    state: str


@dataclass(frozen=True)
class Reading:
    """All threads of a rank, by id, except the one that answers the launch's questions."""

    time: float  # time.monotonic()
    worker: int  # the id of the worker's own thread
    threads: dict[int, ThreadStats]

    @property
    def cpu_s(self) -> float:
        """Processor time of all threads, in seconds."""
        return sum(thread.cpu_s for thread in self.threads.values())

    @property
    def busy(self) -> bool:
        """True if the worker's thread runs or queues now, or any thread waits for a disk."""
        states = [thread.state for thread in self.threads.values()]
        return "D" in states or self.threads[self.worker].state == "R"


def read_worker_thread(pid: int) -> WorkerThreadState:
    """Read the worker's own thread, whose id is that of the process; OSError if it is gone."""
    if not HAS_SCHEDSTAT:
        return WorkerThreadState(0, "")
    thread = _thread(pid, pid)
    return WorkerThreadState(thread.turns, thread.state)


def read(pid: int, leave_out: int = 0) -> Reading:
    """Read all threads of the rank and its children except `leave_out`; OSError if it is gone."""
    now = time.monotonic()
    if not HAS_SCHEDSTAT:
        return Reading(now, pid, {pid: ThreadStats(cpu_time(pid), 0.0, 0, "")})
    threads = _threads(pid)
    threads.pop(leave_out, None)
    for child in _family(pid)[1:]:
        with contextlib.suppress(OSError):  # it has ended
            threads |= _threads(child)
    return Reading(now, pid, threads)


def cpu_time(pid: int) -> float:
    """Processor time of a rank and of every process that it started, in seconds."""
    total = 0.0
    for process in _family(pid):
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(process).cpu_times()
            total += times.user + times.system
            total += getattr(times, "children_user", 0) + getattr(times, "children_system", 0)
    return total


def store_is_queued() -> bool:
    """True if the launch's store, a thread of this process, is runnable but has no processor.

    Ranks that wait for its answer then look still, though they are not hung.
    """
    folder = "/proc/self/task"
    if not HAS_SCHEDSTAT:
        return False
    for number in os.listdir(folder):
        with contextlib.suppress(OSError):  # it has ended
            stat = _read(f"{folder}/{number}/stat")
            if STORE in stat and stat.rpartition(b")")[2].split()[0] == b"R":
                return True
    return False


def no_progress(before: Reading, now: Reading) -> bool:
    """True if the worker's thread had no turn and no other thread worked; polling is not work."""
    if now.busy or before.threads.keys() != now.threads.keys():
        return False
    if before.threads[before.worker].turns != now.threads[now.worker].turns:
        return False
    return now.cpu_s - before.cpu_s <= max(NOISE_S, WORK_SHARE * (now.time - before.time))


def no_starvation(before: Reading, now: Reading) -> bool:
    """True if no thread waits for a processor that it needs.

    Each thread has slept all the time, or polls: it got many turns and found next to nothing to do
    in any of them. A thread that had only a turn or two may have made progress.
    """
    for number, thread in now.threads.items():
        turns = thread.turns - before.threads[number].turns
        cpu_s = thread.cpu_s - before.threads[number].cpu_s
        sleeps = turns == 0 and thread.state != "R"
        if not sleeps and (turns < MIN_POLL_TURNS or cpu_s > turns * SHORT_TURN_S):
            return False
    return True


def idles(before: Reading, now: Reading) -> bool:
    """True if the rank took next to no processor, and its worker did not queue for one either."""
    return _share(before, now, queue=True) < MAX_POLLING_SHARE


def polls(before: Reading, now: Reading) -> bool:
    """True if the rank took next to no processor, and its worker only in short turns.

    On a busy machine each of these turns is queued for, so `idles` cannot tell.
    """
    old, new = before.threads.get(before.worker), now.threads[now.worker]
    if old is None or _share(before, now, queue=False) >= MAX_POLLING_SHARE:
        return False
    return new.cpu_s - old.cpu_s <= (new.turns - old.turns) * SHORT_WORKER_TURN_S


def _share(before: Reading, now: Reading, queue: bool) -> float:
    """The share of the time on a processor; with `queue`, also in the queue for one."""
    seconds = now.cpu_s - before.cpu_s
    if queue:
        seconds += now.threads[now.worker].queue_s - before.threads[before.worker].queue_s
    return seconds / (now.time - before.time)


def _threads(process: int) -> dict[int, ThreadStats]:
    return {int(n): _thread(process, int(n)) for n in os.listdir(f"/proc/{process}/task")}


def _thread(process: int, number: int) -> ThreadStats:
    folder = f"/proc/{process}/task/{number}"
    cpu_ns, queue_ns, turns = _numbers(f"{folder}/schedstat")
    state = _read(f"{folder}/stat").rpartition(b")")[2].split()[0].decode()
    return ThreadStats(cpu_ns * NANO, queue_ns * NANO, turns, state)


def _family(pid: int) -> list[int]:
    """The process and its descendants that are still alive."""
    if not HAS_SCHEDSTAT:
        with contextlib.suppress(psutil.Error):
            return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        return [pid]
    family = [pid]
    for process in family:  # grows as it is walked
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{process}/task"):
                family += map(int, _read(f"/proc/{process}/task/{number}/children").split())
        if len(family) > MAX_PROCESSES:
            break
    return family[:MAX_PROCESSES]


def _numbers(path: str) -> tuple[int, int, int]:
    """The three numbers of a `schedstat`: ns of processor, ns in the queue, turns."""
    cpu_ns, queue_ns, turns = map(int, _read(path).split())
    return cpu_ns, queue_ns, turns


def _read(path: str) -> bytes:
    """Read a small file of /proc; `open` would take three times as long."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


try:
    HAS_SCHEDSTAT = (
        _numbers(f"/proc/self/task/{os.getpid()}/schedstat")[2] > 0
    )  # turns are counted here
except (OSError, ValueError):  # macOS, Windows, some containers, a Linux built without counters
    HAS_SCHEDSTAT = False
