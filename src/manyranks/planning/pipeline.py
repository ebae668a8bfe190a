"""A pipeline by formula: which blocks a rank has, how long it idles, what it keeps for backward.

p ranks hold v stages each, rank r the stages r, r + p, r + 2p, ...; m micro-batches pass through
all of them. A stage takes F for the forward of a micro-batch, I for the gradient of its input and W
for those of its weights; all three count as equal here, and full activation checkpointing makes I
twice as long, because it begins with another forward. Each rank works v m (F + I + W) in a step.

Tests compare these formulas with the schedules that torch.distributed.pipelining makes.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from manyranks.planning.sizes import PlanRefused

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE = "gpipe", "1f1b", "interleaved", "zero-bubble"
SCHEDULES = (GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE)
FORWARD = WEIGHTS = 1.0  # F and W


@dataclass(frozen=True)
class Pipeline:
    """`ranks` with `stages` each, through which `micro_batches` pass in the order of `schedule`."""

    schedule: str
    ranks: int
    stages: int
    micro_batches: int

    @property
    def total_stages(self) -> int:
        """The stages of all ranks."""
        return self.ranks * self.stages

    @property
    def rounds(self) -> int:
        """Interleaved schedules take the micro-batches in rounds of at least one for each rank."""
        return max(1, self.micro_batches // self.ranks)

    def bubble(self, *, recompute: bool = False) -> float:
        """The share of a step in which a rank has nothing to compute, if all stages are equal.

        GPipe and 1F1B idle for (p - 1) (F + I + W), which is (p - 1) / (m + p - 1) of the step
        (Huang et al., "GPipe", 2019). Interleaved stages are v times shorter, so that it becomes
        (p - 1) / (v m + p - 1) (Narayanan et al., "Efficient Large-Scale Language Model Training on
        GPU Clusters Using Megatron-LM", 2021, section 2.2); for each micro-batch that is missing to
        p, v - 1 stages more. Zero bubble computes W where the others idle: (p - 1) (F + I - W) is
        left (Qi et al., "Zero Bubble Pipeline Parallelism", 2023, ZB-H1 in table 2).
        `recompute`: full activation checkpointing.
        """
        inputs = FORWARD + 1.0 if recompute else 1.0
        each = FORWARD + inputs + WEIGHTS
        idle = (self.ranks - 1) * each
        if self.schedule == INTERLEAVED:
            idle += (self.stages - 1) * max(0, self.ranks - self.micro_batches) * each
        elif self.schedule == ZERO_BUBBLE:
            idle = (self.ranks - 1) * (FORWARD + inputs - WEIGHTS)
        return idle / (self.stages * self.micro_batches * each + idle)

    def in_flight(self, rank: int = 0) -> int:
        """Micro-batches times stages that a rank keeps activations of, at most.

        GPipe keeps all m; 1F1B p - r, so p on the first rank (Narayanan et al., 2021). Interleaved
        stages warm up with more: p v + p - 1 on the first rank, each a v-th of what the rank has
        (Korthikanti et al., 2022, section 4.2.3: a factor of 1 + (p - 1) / (p v)). Zero bubble
        keeps what W still needs: p v on each rank (Qi et al., 2023).
        """
        behind = self.ranks - 1 - rank
        warm_up = (self.stages - 1) * (self.micro_batches // self.rounds)
        most = {
            GPIPE: self.micro_batches,
            ONE_F_ONE_B: behind + 1,
            INTERLEAVED: warm_up + 2 * behind + 1,
            ZERO_BUBBLE: warm_up + self.ranks,
        }
        return min(most[self.schedule], self.stages * self.micro_batches)

    def different_ranks(self, layers: int, dense: Collection[int] = ()) -> list[int]:
        """The first of all ranks with equal blocks: of these, it keeps most in flight.

        The `dense` blocks differ from the others.
        """
        first: dict[tuple, int] = {}
        for rank in range(self.ranks):
            blocks = [number for stage in self.blocks(layers, rank) for number in stage]
            ends = rank == 0, rank == self.ranks - 1
            first.setdefault((ends, len(blocks), len(set(blocks) & set(dense))), rank)
        return list(first.values())

    def blocks(self, layers: int, rank: int) -> list[range]:
        """The blocks of each stage of a rank.

        As torchtitan deals them out: the embedding and the output layer count as a block each, and
        the first stages get what is left over (generate_llm_fqn_per_model_part in
        torchtitan/distributed/pipeline_parallel.py, 2025).
        """
        return list(blocks_of_stages(layers, self.total_stages)[rank :: self.ranks])


@cache
def blocks_of_stages(layers: int, stages: int) -> tuple[range, ...]:
    """The blocks of each stage, see `Pipeline.blocks`."""
    each, more = divmod(layers + 2, stages)
    starts = [max(0, stage * each + min(stage, more) - 1) for stage in range(stages)]
    return tuple(range(*ends) for ends in pairwise([*starts, layers]))


def check_pipeline(pipeline: Pipeline, layers: int, model: str) -> None:
    """Raise PlanRefused for a pipeline that cannot be, with what can."""
    name, ranks, stages = pipeline.schedule, pipeline.ranks, pipeline.stages
    micro_batches, total = pipeline.micro_batches, pipeline.total_stages
    if stages > 1 and name in (GPIPE, ONE_F_ONE_B):
        raise PlanRefused(
            f'stages_per_rank={stages} is for schedule="{INTERLEAVED}" or "{ZERO_BUBBLE}"; '
            f'"{name}" has one stage on each rank.'
        )
    if stages < 2 and name == INTERLEAVED:
        raise PlanRefused(
            f'schedule="{INTERLEAVED}" needs 2 or more stages on each rank: '
            f'stages_per_rank=2, or schedule="{ONE_F_ONE_B}".'
        )
    if total > layers + 2:
        each = f" x {stages} stages a rank" if stages > 1 else ""
        raise PlanRefused(
            f"pipeline={ranks}{each} makes {total} stages, more than the {layers} blocks of "
            f"{model} and its embedding and output layer: take at most {layers + 2} stages."
        )
    if stages > 1 and micro_batches % pipeline.rounds:
        raise PlanRefused(
            f"{micro_batches} micro-batches are not {pipeline.rounds} equal rounds, as interleaved "
            f"stages on {ranks} ranks need: take a multiple of {ranks}."
        )
    if name == ZERO_BUBBLE and micro_batches < ranks:
        raise PlanRefused(
            f'schedule="{ZERO_BUBBLE}" with {micro_batches} micro-batches for {ranks} ranks: its '
            f'formula needs one for each rank. Take {ranks} or more, or schedule="{ONE_F_ONE_B}".'
        )
