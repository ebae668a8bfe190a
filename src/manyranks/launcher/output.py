"""The ranks' output: whole lines, marked by rank, and never more than a page can hold."""

import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TextIO

from manyranks.rank_colours import ansi, rank_colour

MAX_LINES = 2000  # shown of all ranks together; a page with more is slow and unread
TAIL_LINES = 20  # kept of the lines after those
MAX_LINE_CHARS = 2000  # characters shown of one line


class RankOutput:
    """Turns one rank's bytes into lines, whatever their encoding and length."""

    def __init__(self, rank: int, show: Callable[[int, str], None], max_lines: int):
        self.rank, self.show, self.max_lines = rank, show, max_lines
        self.partial, self.excess_bytes = bytearray(), 0
        self.shown_lines = self.hidden_lines = self.hidden_bytes = 0
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.recent: deque[str] = deque(maxlen=TAIL_LINES)  # shown or not

    def feed(self, data: bytes) -> None:
        """Take new bytes; show each complete line."""
        if self.shown_lines >= self.max_lines and len(data) > MAX_LINE_CHARS:
            data = self._skip(data)
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._extend(line)
            self._complete()
        self._extend(rest)

    def close(self) -> None:
        """Show a last line that has no newline, and say how much was left out."""
        if self.partial or self.excess_bytes:
            self._complete()
        if self.hidden_lines:
            omitted_lines = self.hidden_lines - len(self.tail)
            if omitted_lines:
                self.show(
                    self.rank,
                    f"… {omitted_lines:,} lines not shown ({self.hidden_bytes / 1e6:,.1f} MB "
                    f"printed after the first {self.max_lines:,} lines); "
                    f"the last {len(self.tail)}:",
                )
            for line in self.tail:
                self.show(self.rank, line)
            self.hidden_lines, self.tail = 0, deque(maxlen=TAIL_LINES)

    def _skip(self, data: bytes) -> bytes:
        """In a flood: count all lines but the last ones without decoding them."""
        lines = data.count(b"\n")
        if lines <= TAIL_LINES + 1:
            return data
        tail = data.rsplit(b"\n", TAIL_LINES + 1)
        self.hidden_lines += lines - TAIL_LINES
        self.hidden_bytes += len(tail[0]) + 1 + len(self.partial)
        self.partial.clear()
        self.excess_bytes = 0
        return b"\n".join(tail[1:])

    def _extend(self, piece: bytes) -> None:
        _, carriage_return, after = piece[:-1].rpartition(
            b"\r"
        )  # one at the end may be half of a \r\n
        if carriage_return or (piece and self.partial.endswith(b"\r")):
            self.partial.clear()  # a progress bar, which overwrites its line
            self.excess_bytes = 0
            piece = after + piece[-1:]
        room = max(0, 4 * MAX_LINE_CHARS - len(self.partial))
        self.partial += piece[:room]
        self.excess_bytes += len(piece[room:])

    def _complete(self) -> None:
        text = self.partial.decode("utf-8", "backslashreplace").rstrip("\r")
        if self.excess_bytes or len(text) > MAX_LINE_CHARS:
            size = self.excess_bytes + len(self.partial)
            text = f"{text[:MAX_LINE_CHARS]} … ({size:,} bytes in this line)"
        self.recent.append(text)
        if self.shown_lines < self.max_lines:
            self.shown_lines += 1
            self.show(self.rank, text)
        else:
            self.hidden_lines += 1
            self.hidden_bytes += len(self.partial) + self.excess_bytes + 1
            self.tail.append(text)
        self.partial.clear()
        self.excess_bytes = 0


class Printer:
    """Prints the ranks' lines, each with its rank in colour, on the page or into a file.

    With `names`, a line starts with the name of its process instead, without colour, because it is
    not a rank.
    """

    def __init__(
        self, ranks: int, file: TextIO | None = None, names: Sequence[str] | None = None
    ) -> None:
        self.file, self.names = file, names
        self.max_lines = max(100, MAX_LINES // ranks)  # of each rank
        self.batch: list[str] = []
        self.notices: set[str] = set()  # kinds that were printed

    def line(self, rank: int, text: str) -> None:
        """Take one line of a rank."""
        if self.names:
            self.batch.append(f"[{self.names[rank]}] {text}")
            return
        mark, with_colour = f"[rank {rank}]", self.file is None and in_colour()
        self.batch.append(f"{ansi(rank_colour(rank), mark) if with_colour else mark} {text}")

    def notice(self, kind: str, sentence: str) -> None:
        """Take a sentence about the launch as a whole, once of each kind."""
        if kind not in self.notices:
            self.notices.add(kind)
            self.batch.append(sentence)

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
    return prints_in_kernel() or sys.stdout.isatty()


def prints_in_kernel() -> bool:
    """True if what is printed appears in a notebook."""
    return type(sys.stdout).__module__.startswith("ipykernel")
