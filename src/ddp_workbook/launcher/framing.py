"""Message framing between kernel and rank: a rank that stops within a message blocks no other.

A message has a head (what it says) and a body (a result, perhaps of gigabytes).
"""

import os
import struct
from collections.abc import Iterator
from multiprocessing.connection import Connection

LENGTHS = struct.Struct("!QQ")
READ_AT_ONCE = 1 << 18  # bytes
WRITE_AT_ONCE = 1 << 20


def send(pipe: Connection, head: bytes, body: bytes | memoryview = b"") -> None:
    """Write one message; raises OSError if the other end has gone."""
    _write(pipe, memoryview(LENGTHS.pack(len(head), len(body)) + head))
    _write(pipe, memoryview(body))


def _write(pipe: Connection, data: memoryview) -> None:
    while data:
        piece = data[:WRITE_AT_ONCE]
        if os.name == "nt":
            pipe.send_bytes(piece)
            data = data[len(piece) :]
        else:
            data = data[os.write(pipe.fileno(), piece) :]


def read_some(pipe: Connection) -> bytes:
    """Read what is there, at least one byte; raises EOFError at the end, and OSError."""
    data = pipe.recv_bytes() if os.name == "nt" else os.read(pipe.fileno(), READ_AT_ONCE)
    if not data:
        raise EOFError
    return data


class Decoder:
    """Reassembles messages from the pieces that `read_some` returns."""

    def __init__(self) -> None:
        self.pieces = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Take a piece; yield head and body of each message that is now complete."""
        self.pieces += data
        while len(self.pieces) >= LENGTHS.size:
            head, body = LENGTHS.unpack_from(self.pieces)
            if len(self.pieces) < LENGTHS.size + head + body:
                return
            with memoryview(self.pieces) as view:
                message = view[LENGTHS.size :]
                parts = bytes(message[:head]), bytes(message[head : head + body])
                message.release()
            del self.pieces[: LENGTHS.size + head + body]
            yield parts
