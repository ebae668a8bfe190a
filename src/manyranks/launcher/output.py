"""The ranks' output: whole lines, marked by rank, and never more than a page can hold."""

import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TextIO

from manyranks.rank_colours import ansi, rank_colour

MOST_LINES = 2000  # shown of all ranks together; a page with more is slow and unread
LAST_LINES = 20  # kept of the lines after those
MAX_LINE_CHARS = 2000  # characters shown of one line


class RankOutput:
    """Turns one rank's bytes into lines, whatever their encoding and length."""

    def __init__(self, rank: int, show: Callable[[int, str], None], most_lines: int):
        self.rank, self.show, self.most_lines = rank, show, most_lines
        self.partial, self.cut = bytearray(), 0
        self.shown = self.hidden = self.hidden_bytes = 0
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self.recent: deque[str] = deque(maxlen=LAST_LINES)  # shown or not

    def feed(self, data: bytes) -> None:
        """Take new bytes; show each complete line."""
        if self.shown >= self.most_lines and len(data) > MAX_LINE_CHARS:
            data = self._skip(data)
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._extend(line)
            self._complete()
        self._extend(rest)

    def close(self) -> None:
        """Show a last line that has no newline, and say how much was left out."""
        if self.partial or self.cut:
            self._complete()
        if self.hidden:
            left_out = self.hidden - len(self.last)
            if left_out:
                self.show(
                    self.rank,
                    f"… {left_out:,} lines not shown ({self.hidden_bytes / 1e6:,.1f} MB printed "
                    f"after the first {self.most_lines:,} lines); the last {len(self.last)}:",
                )
            for line in self.last:
                self.show(self.rank, line)
            self.hidden, self.last = 0, deque(maxlen=LAST_LINES)

    def _skip(self, data: bytes) -> bytes:
        """In a flood: count all lines but the last ones without decoding them."""
        lines = data.count(b"\n")
        if lines <= LAST_LINES + 1:
            return data
        tail = data.rsplit(b"\n", LAST_LINES + 1)
        self.hidden += lines - LAST_LINES
        self.hidden_bytes += len(tail[0]) + 1 + len(self.partial)
        self.partial.clear()
        self.cut = 0
        return b"\n".join(tail[1:])

    def _extend(self, piece: bytes) -> None:
        _, returned, after = piece[:-1].rpartition(b"\r")  # one at the end may be half of a \r\n
        if returned or (piece and self.partial.endswith(b"\r")):
            self.partial.clear()  # a progress bar, which overwrites its line
            self.cut = 0
            piece = after + piece[-1:]
        room = max(0, 4 * MAX_LINE_CHARS - len(self.partial))
        self.partial += piece[:room]
        self.cut += len(piece[room:])

    def _complete(self) -> None:
        text = self.partial.decode("utf-8", "backslashreplace").rstrip("\r")
        if self.cut or len(text) > MAX_LINE_CHARS:
            text = (
                f"{text[:MAX_LINE_CHARS]} … ({self.cut + len(self.partial):,} bytes in this line)"
            )
        self.recent.append(text)
        if self.shown < self.most_lines:
            self.shown += 1
            self.show(self.rank, text)
        else:
            self.hidden += 1
            self.hidden_bytes += len(self.partial) + self.cut + 1
            self.last.append(text)
        self.partial.clear()
        self.cut = 0


class Printer:
    """Prints the ranks' lines, each with its rank in colour, on the page or into a file.

    With `names`, a line starts with the name of its process instead, without colour, because it is
    not a rank.
    """

    def __init__(
        self, ranks: int, file: TextIO | None = None, names: Sequence[str] | None = None
    ) -> None:
        self.file, self.names = file, names
        self.most_lines = max(100, MOST_LINES // ranks)  # of each rank
        self.batch: list[str] = []

    def line(self, rank: int, text: str) -> None:
        """Take one line of a rank."""
        if self.names:
            self.batch.append(f"[{self.names[rank]}] {text}")
            return
        mark, coloured = f"[rank {rank}]", self.file is None and in_colour()
        self.batch.append(f"{ansi(rank_colour(rank), mark) if coloured else mark} {text}")

    def flush(self) -> None:
        """Print what has come since the last flush."""
        if not self.batch:
            return
        text, self.batch = "\n".join(self.batch), []
        try:
            print(text, file=self.file, flush=True)
        except UnicodeEncodeError:  # a terminal with a small character set
            encoding = sys.stdout.encoding
            print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def in_colour() -> bool:
    """True on a terminal and in a notebook, unless NO_COLOR is set (https://no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    return type(sys.stdout).__module__.startswith("ipykernel") or sys.stdout.isatty()
