"""Three walls that `fully_shard` alone runs into as a model, a sequence or a cluster grows."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from manyranks.planning.activations import Saving, block_bytes
from manyranks.planning.plan import Plan, plan
from manyranks.planning.sizes import format_bytes, format_gb, format_seconds, whole_number

ACTIVATIONS, BATCH, NETWORK = "one block's activations", "the batch a GPU", "the bytes of a step"


@dataclass(frozen=True)
class Walls:
    """What `walls` returns; `print` it for three sentences.

    alone
        The plan of `fully_shard` alone, with one sequence at a time on each GPU.
    block
        Bytes that one block saves for the backward of one sequence; they exist once even if every
        block is computed again, and no number of GPUs makes them fewer.
    global_batch
        Sequences in a step.
    """

    alone: Plan
    block: int
    global_batch: int

    @property
    def heights(self) -> dict[str, float]:
        """How many times each resource is used up; a wall is where that is more than 1."""
        settings = self.alone.settings
        return {
            ACTIVATIONS: self.block / settings.memory,
            BATCH: settings.gpus / self.global_batch,
            NETWORK: self.alone.network_seconds / self.alone.compute_seconds,
        }

    @property
    def wall(self) -> str:
        """The highest wall above 1; "" if there is none."""
        name = max(self.heights, key=self.heights.__getitem__)
        return name if self.heights[name] > 1 else ""

    @property
    def sentences(self) -> dict[str, str]:
        """Each wall in a sentence, with what cuts it."""
        settings, alone = self.alone.settings, self.alone
        memory = format_gb(settings.memory)
        has = self.global_batch / settings.gpus
        return {
            ACTIVATIONS: f"one block keeps {format_bytes(self.block)} for one sequence of "
            f"{settings.sequence:,} tokens, on GPUs of {memory}; tensor and context parallelism "
            "cut it",
            BATCH: f"{self.global_batch:,} sequences in a step are {has:.3g} for each of "
            f"{settings.gpus:,} GPUs, and fully_shard needs one; pipeline, tensor and context "
            "parallelism let GPUs share a sequence",
            NETWORK: f"the calls of a micro-batch take {format_seconds(alone.network_seconds)}, "
            f"its compute {format_seconds(alone.compute_seconds)}; with a pipeline each GPU "
            "gathers fewer blocks, and only once a step",
        }

    @property
    def table(self) -> pd.DataFrame:
        """A row for each wall: its height (above 1 it is one), and the sentence."""
        rows = [(name, self.heights[name], words) for name, words in self.sentences.items()]
        return pd.DataFrame(rows, columns=["wall", "height", "what"]).set_index("wall")

    def __str__(self) -> str:
        lines = [
            f"{'wall' if self.heights[name] > 1 else 'room'} {self.heights[name]:6.2f}  "
            f"{name}: {words}."
            for name, words in self.sentences.items()
        ]
        return "\n".join(lines)


def walls(
    parameters: Any = "70B",
    gpus: int = 64,
    memory: str | int | None = None,
    *,
    global_batch: int | None = None,
    sequence: int = 4096,
    **options: Any,
) -> Walls:
    """Where `fully_shard` alone stops: one block's activations, the batch a GPU, the bytes of a
    step. Arguments as in `plan`; `global_batch` is by default one sequence for each GPU."""
    alone = plan(parameters, gpus, memory, sequence=sequence, **options)
    settings = alone.settings
    size = settings.gpus if global_batch is None else global_batch
    block = block_bytes(alone.shape, settings.sequence, Saving(settings.dtype))
    return Walls(alone, block, whole_number(size, "global_batch", most=10**9))
