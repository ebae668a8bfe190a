"""When each rank entered each call, seen by all ranks of a launch: a file that all of them map.

On one machine all processes read one clock, `time.perf_counter`.
"""

import mmap
import os
from pathlib import Path

import numpy

MAX_PENDING_CALLS = 4096  # calls that can be under way before the first of them is overwritten


class EntryTimes:
    """For each call of a group, the time in seconds at which each of `members` entered it."""

    def __init__(self, folder: Path, name: str, members: int):
        self.shape = (MAX_PENDING_CALLS, members)
        size = MAX_PENDING_CALLS * members * 8
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, size)  # whoever comes first fills it with zeros
            self.times = numpy.frombuffer(mmap.mmap(descriptor, size)).reshape(self.shape)
        finally:
            os.close(descriptor)

    def enter(self, number: int, member: int, time: float) -> None:
        """Note when this member entered the group's call of this number."""
        self.times[number % MAX_PENDING_CALLS, member] = time

    def last(self, number: int, members: list[int] | slice = slice(None)) -> float:
        """When the last of these members entered it, of those that have."""
        return float(self.times[number % MAX_PENDING_CALLS, members].max())
