"""Results of every kind: large, light, and such as cannot travel."""

import os
import sys
import threading
import time
from dataclasses import dataclass

import numpy
import torch


def one_generator():
    return (n for n in range(3)) if os.environ["RANK"] == "1" else "fine"


def a_lambda():
    return lambda: 1


def deep():
    chain = []
    for _ in range(100_000):
        chain = [chain]
    return chain


def refuse(*_):
    raise ValueError("the other side cannot make this")


class OneWay:
    """Can be packed, but not unpacked."""

    def __reduce__(self):
        return refuse, ()


def unreadable():
    return OneWay()


def ones(size: int, rank: int | None = None):
    """`size` bytes, from this rank only if there is one."""
    if rank is None or os.environ["RANK"] == str(rank):
        return torch.ones(size, dtype=torch.uint8)
    return None


def sends_while_another_hangs(size: int):
    if os.environ["RANK"] == "1":
        time.sleep(60)
    return torch.ones(size, dtype=torch.uint8)


def gets_a_signal_while_sending(size: int, number: int):
    """Rank 0, half a second after it has begun to send."""
    if os.environ["RANK"] != "0":
        return None
    threading.Thread(target=_signal_later, args=(number,), daemon=True).start()
    return torch.ones(size, dtype=torch.uint8)


def _signal_later(number: int):
    main = threading.main_thread().ident
    while "_write" not in {frame.f_code.co_name for frame in outwards(main)}:
        time.sleep(0.01)
    time.sleep(0.5)
    os.kill(os.getpid(), number)


def outwards(thread: int):
    """The frames of a thread, innermost first."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        yield frame
        frame = frame.f_back


class Endless:
    """Its reading never ends in the process that gets it."""

    def __setstate__(self, state):
        while True:
            time.sleep(0.001)

    def __getstate__(self):
        return {"anything": 1}


def endless():
    return Endless()


class TooMuch:
    """There is never enough memory to pickle it."""

    def __reduce__(self):
        raise MemoryError


def too_much():
    return TooMuch()


@dataclass
class Measurement:
    """A value with arrays, as experiments return it."""

    name: str
    curve: numpy.ndarray
    points: list[numpy.ndarray]


def nested():
    torch.manual_seed(0)
    model = torch.nn.Linear(300, 300)
    shared = torch.arange(100_000.0)
    measured = Measurement("loss", numpy.arange(50_000.0), [numpy.eye(200), numpy.arange(3)])
    return model.state_dict(), measured, (shared, shared, shared.view(1000, 100))


def pieces_of(rank: int) -> list[torch.Tensor]:
    """Tensors from a few bytes to 10 MB; other values on each rank."""
    sizes = [3, 70_000, 1 << 20, 10_000_001, 0, 65_536 + rank]
    return [torch.full((size,), 10 * rank + n, dtype=torch.uint8) for n, size in enumerate(sizes)]


def many_pieces():
    return 20 * [pieces_of(int(os.environ["RANK"]))], pieces_of(int(os.environ["RANK"]))
