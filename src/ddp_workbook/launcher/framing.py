"""Letters between kernel and rank, on a stream: a rank stopped within one holds up nobody."""

import os
import struct
from collections.abc import Iterator
from multiprocessing.connection import Connection

LENGTHS = struct.Struct("!QQ")
READ_AT_ONCE = 1 << 18  # bytes
WRITE_AT_ONCE = 1 << 20


def send(pipe: Connection, head: bytes, body: bytes | memoryview = b"") -> None:
    """Write one letter; raises OSError if the other end has gone."""
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


def some(pipe: Connection) -> bytes:
    """What is there to read, at least one byte; raises EOFError at the end, and OSError."""
    data = pipe.recv_bytes() if os.name == "nt" else os.read(pipe.fileno(), READ_AT_ONCE)
    if not data:
        raise EOFError
    return data


class Inbox:
    """Puts letters together again from the pieces that `some` gives."""

    def __init__(self) -> None:
        self.pieces = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Take a piece; give head and body of each letter that is complete now."""
        self.pieces += data
        while len(self.pieces) >= LENGTHS.size:
            head, body = LENGTHS.unpack_from(self.pieces)
            if len(self.pieces) < LENGTHS.size + head + body:
                return
            with memoryview(self.pieces) as view:
                letter = view[LENGTHS.size :]
                parts = bytes(letter[:head]), bytes(letter[head : head + body])
                letter.release()
            del self.pieces[: LENGTHS.size + head + body]
            yield parts
