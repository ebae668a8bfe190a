"""Results of every kind: large, light, and such as cannot travel."""

import os

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


def large(size: int):
    result = torch.zeros(size, dtype=torch.uint8)
    result[-1] = 7
    return result


def views():
    storage = torch.arange(1_000_000.0)
    return (
        storage[3:5],
        storage[3:5].requires_grad_(),
        torch.nn.Parameter(storage[3:5]),
        torch.nn.Linear(2, 2),
    )
