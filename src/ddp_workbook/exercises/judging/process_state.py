"""State of the whole process, which an exercise's function must leave unchanged."""

import random
import types

import numpy
import torch
import torch.distributed as dist

LOOK_AT_STATE = {
    "the seed": "A seed set here also changes later random numbers: dropout, shuffling, other "
    "people's code. Do you need random numbers at all? If so, take them from a torch.Generator.",
    "the state": "Was a seed set, or a number drawn? Both change later random numbers in the whole "
    "process. Do you need random numbers at all?",
    "the process group": "The code that made the group also ends it.",
    "torch.distributed.": "Which line replaces it? All code of the process would now call the "
    "replacement.",
}


class State:
    """A snapshot of this process: seeds, modes of torch, the group, torch.distributed itself.

    `may_seed` leaves out the seeds.
    """

    def __init__(self, may_seed: bool = False) -> None:
        self.values = {} if may_seed else random_state()
        self.values |= {
            "torch.is_grad_enabled()": torch.is_grad_enabled(),
            "torch.get_default_dtype()": torch.get_default_dtype(),
            "torch.get_default_device()": torch.get_default_device(),
            "the process group": dist.is_initialized() and str(dist.group.WORLD),
        }
        for name, value in vars(dist).items():
            if type(value) is types.FunctionType:  # isinstance would wake a deprecated name
                self.values[f"torch.distributed.{name}"] = value

    def changed(self, other: "State") -> list[str]:
        """Names of the parts that differ."""
        return [name for name, value in self.values.items() if other.values.get(name) != value]


def random_state() -> dict[str, object]:
    """The seed of torch, which drawing does not change, and the state of other generators."""
    kind, keys, *rest = numpy.random.get_state()
    return {
        "the seed of torch": torch.initial_seed(),
        "the state of Python's random": random.getstate(),
        "the state of NumPy's random": (kind, keys.tobytes(), *rest),
    }
