"""Message framing between kernel and rank: a rank that stops within a message blocks no other.

A message has a head (what it says) and a body in parts (a result, perhaps of gigabytes). Nothing
copies a part: it is written from where it lies, and read into memory of its own.
"""

import itertools
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection

import numpy

START = struct.Struct("!QQ")  # length of the head in bytes, number of parts
LENGTH = struct.Struct("!Q")  # of a part, in bytes; one for each part stands before the head
READ_BYTES = 1 << 18  # bytes
WRITE_BYTES = 1 << 20
MAX_PARTS = 64  # to read into at once; systems allow 1,024


def send(pipe: Connection, head: bytes, body: Sequence[memoryview] = ()) -> None:
    """Write one message; raises OSError if the other end has gone."""
    lengths = b"".join(LENGTH.pack(part.nbytes) for part in body)
    _write(pipe, memoryview(START.pack(len(head), len(body)) + lengths + head))
    for part in body:
        _write(pipe, part)


def _write(pipe: Connection, data: memoryview) -> None:
    while data:
        piece = data[:WRITE_BYTES]
        if os.name == "nt":
            pipe.send_bytes(piece)
            data = data[len(piece) :]
        else:
            data = data[os.write(pipe.fileno(), piece) :]


def read_available(pipe: Connection) -> bytes:
    """Read what is there, at least one byte; raises EOFError at the end, and OSError."""
    data = pipe.recv_bytes() if os.name == "nt" else os.read(pipe.fileno(), READ_BYTES)
    if not data:
        raise EOFError
    return data


class Decoder:
    """Reassembles messages from the pieces in which they arrive.

    `expect` is called with the lengths of a body's parts, in bytes, before there is memory for
    them; what it raises passes through `read`, and the decoder must not be used again.
    """

    def __init__(self, expect: Callable[[list[int]], None] = lambda lengths: None):
        self.expect = expect
        self.pieces = bytearray()  # read, but not yet part of a message
        self.head: bytes | None = None  # None between two messages
        self.body: list[numpy.ndarray] = []
        self.gaps: deque[memoryview] = deque()  # the ends of the parts that are not yet full
        self.missing = 0  # bytes in all gaps

    def read(self, pipe: Connection) -> Iterator[tuple[bytes, list[numpy.ndarray]]]:
        """Read what is there, at least one byte; yield head and body of each complete message.

        Raises EOFError at the end, and OSError.
        """
        if self.gaps and os.name != "nt":
            count = os.readv(pipe.fileno(), list(itertools.islice(self.gaps, MAX_PARTS)))
            if not count:
                raise EOFError
            self._mark_filled(count)
        else:
            self.pieces += read_available(pipe)
        while self.head is not None or self._begin():
            self._fill()
            if self.gaps:
                return
            head, body = self.head or b"", self.body
            self.head, self.body = None, []
            yield head, body

    def _begin(self) -> bool:
        """Start a message if its lengths and its head are there, with memory for its body."""
        if len(self.pieces) < START.size:
            return False
        size, parts = START.unpack_from(self.pieces)
        begin = START.size + parts * LENGTH.size
        if len(self.pieces) < begin + size:
            return False
        lengths = [n for (n,) in LENGTH.iter_unpack(self.pieces[START.size : begin])]
        self.expect(lengths)
        self.head = bytes(self.pieces[begin : begin + size])
        del self.pieces[: begin + size]
        self.body = [numpy.empty(length, numpy.uint8) for length in lengths]  # not touched yet
        self.gaps.extend(part.data for part in self.body if part.nbytes)
        self.missing = sum(lengths)
        return True

    def _fill(self) -> None:
        """Move what is there into the gaps."""
        while self.gaps and self.pieces:
            count = min(len(self.gaps[0]), len(self.pieces))
            self.gaps[0][:count] = self.pieces[:count]
            del self.pieces[:count]
            self._mark_filled(count)

    def _mark_filled(self, count: int) -> None:
        """Note that the next `count` bytes of the gaps are there."""
        self.missing -= count
        while count:
            gap = self.gaps.popleft()
            if count < len(gap):
                self.gaps.appendleft(gap[count:])
            count -= min(count, len(gap))
