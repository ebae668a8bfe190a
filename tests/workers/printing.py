"""Workers that print, much or in odd ways."""

import os
import sys
import time


def rank() -> int:
    return int(os.environ["RANK"])


def lines(count: int, size: int = 40):
    line = "x" * size
    for n in range(count):
        print(n, line)


def flood(megabytes: int):
    """Lines of 100 bytes, the last of them numbered."""
    block = b"".join(b"%08d %s\n" % (n, b"y" * 90) for n in range(10_000))
    for _ in range(megabytes):
        os.write(1, block)
    print("the last line")


def endless_line(megabytes: int):
    for _ in range(megabytes):
        os.write(1, b"z" * 1_000_000)


def raw(data: bytes, flush: bool = True):
    os.write(1, data)


def ends_without_newline():
    print("first")
    print("no newline at the end", end="")


def progress():
    for n in range(2000):
        print(f"\r{n} of 2000", end="", flush=True)
    print("\r2000 of 2000")
    print("done\r")


def both_streams():
    print("to stdout")
    print("to stderr", file=sys.stderr)
    os.system("echo from a subprocess")


def in_turns(seen: str):
    """Rank 0 first; rank 1 once somebody has made the file `seen`."""
    while rank() == 1 and not os.path.exists(seen):
        time.sleep(0.01)
    print("now")


def half_lines():
    for _ in range(200):
        os.write(1, f"rank {rank()} begins ".encode())
        os.write(1, b"and ends\n")


def floods_after_its_end():
    """A child of the rank continues to print."""
    if os.fork() == 0:
        os.setsid()
        while True:
            os.write(1, b"still here\n" * 1000)
    return rank()


def replaces_stdout():
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    print("nobody sees this")
    sys.stderr.write("half a line")
