"""A pipeline's schedule as a reader types it: read, checked in sentences, timed on paper.

A line a rank, a cell for each thing that the rank does: F0 is the forward of micro-batch 0, B0 its
backward, and I0 and W0 are the two halves of a backward, for the inputs and for the weights. With
several stages on a rank a cell names its stage first, as in 2F0. A dot is a hole. The ranks go
through their lines from left to right, and wait where an input is not there yet.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from manyranks.errors import WorkbookError

FORWARD, BACKWARD, INPUTS, WEIGHTS = "FBIW"
UNITS = {FORWARD: 1, BACKWARD: 2, INPUTS: 1, WEIGHTS: 1}  # lengths, in those of a forward
HOLES = {".", "-", "_"}
CELL = re.compile(r"(\d*)([FBIW])(\d+)", re.IGNORECASE)
MOST = 3  # sentences of one kind


class ScheduleRefused(WorkbookError, ValueError):
    """A schedule that cannot run, or that nobody can read; the message says where.

    `kind` is the name of the function that found it.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Cell(NamedTuple):
    """One thing that a rank does."""

    kind: str
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"  # as PyTorch writes it

    def short(self) -> str:
        """Without the stage."""
        return f"{self.kind}{self.micro_batch}"


class Timed(NamedTuple):
    """A cell, its rank, and when it starts and ends."""

    rank: int
    cell: Cell
    start: float
    end: float


class Schedule:
    """A schedule that can run: `cells` for each rank in its order, and the rank of each stage."""

    def __init__(
        self, cells: Sequence[Sequence[Cell]], stage_ranks: Sequence[int], micro_batches: int
    ) -> None:
        self.cells, self.stage_ranks = cells, list(stage_ranks)
        self.micro_batches = micro_batches

    @property
    def ranks(self) -> int:
        """How many there are."""
        return len(self.cells)

    def name(self, cell: Cell) -> str:
        """As a reader writes it: with the stage only where a rank has several."""
        return cell.short() if len(self.stage_ranks) == self.ranks else str(cell)

    def needs(self, cell: Cell) -> list[Cell]:
        """The cells that must have ended before this one starts."""
        kind, stage, number = cell
        if kind == FORWARD:
            return [Cell(FORWARD, stage - 1, number)] if stage else []
        if kind == WEIGHTS:
            return [Cell(INPUTS, stage, number)]
        before = [Cell(FORWARD, stage, number)]
        if stage + 1 < len(self.stage_ranks):
            next_cells = self.cells[self.stage_ranks[stage + 1]]
            kinds = (BACKWARD, INPUTS)
            before += [c for k in kinds if (c := Cell(k, stage + 1, number)) in next_cells]
        return before

    @cached_property
    def timed(self) -> list[Timed]:
        """When each cell runs at the earliest, in units of a forward; messages take no time.

        Raises ScheduleRefused if ranks wait for one another for ever.
        """
        done: dict[Cell, float] = {}
        result, place, now = [], [0] * self.ranks, [0.0] * self.ranks
        while waiting := [r for r in range(self.ranks) if place[r] < len(self.cells[r])]:
            ready = [
                r for r in waiting if all(c in done for c in self.needs(self.cells[r][place[r]]))
            ]
            if not ready:
                raise ScheduleRefused(self._deadlock(waiting, place, done), "deadlock")
            for rank in ready:
                cell = self.cells[rank][place[rank]]
                start = max([now[rank], *(done[c] for c in self.needs(cell))])
                done[cell] = now[rank] = start + UNITS[cell.kind]
                place[rank] += 1
                result.append(Timed(rank, cell, start, done[cell]))
        return result

    def _deadlock(self, waiting: Sequence[int], place: Sequence[int], done: Mapping) -> str:
        words = []
        for rank in waiting:
            cell = self.cells[rank][place[rank]]
            missing = next(c for c in self.needs(cell) if c not in done)
            other = self.stage_ranks[missing.stage]
            words.append(
                f"rank {rank} at {self.name(cell)} for rank {other}'s {self.name(missing)}"
            )
        return f"Each rank that is not done waits for another one: {', '.join(words)}."

    @property
    def bubble(self) -> float:
        """The share of all ranks' time in which they wait, by the units."""
        return idle_share(self.timed, self.ranks)

    @property
    def in_flight(self) -> list[int]:
        """For each rank the micro-batches whose activations it holds, at most, of all its stages.

        Those of a micro-batch are there from its forward to the end of its backward, W included.
        """
        return [most_in_flight(cells) for cells in self.cells]


def idle_share(events: Sequence[Timed], ranks: int) -> float:
    """The share of all ranks' time, from the first start to the last end, in which they wait."""
    length = max(event.end for event in events) - min(event.start for event in events)
    return 1 - sum(event.end - event.start for event in events) / (ranks * length)


def most_in_flight(cells: Sequence[Cell]) -> int:
    """The most forwards whose backwards are not over."""
    held = most = 0
    for cell in cells:
        held += (cell.kind == FORWARD) - (cell.kind in (BACKWARD, WEIGHTS))
        most = max(most, held)
    return most


# What a reader has typed


def stage_ranks_in_turn(ranks: int, stages_of_a_rank: int = 1) -> list[int]:
    """The rank of each stage, if rank r has the stages r, r + ranks, and so on."""
    return [stage % ranks for stage in range(ranks * stages_of_a_rank)]


def stage_ranks_in_v(ranks: int) -> list[int]:
    """The rank of each stage, if rank r has stage r, and the one that is as far from the last."""
    return [*range(ranks), *reversed(range(ranks))]


def read(
    lines: Sequence[str], micro_batches: int, stage_ranks: Sequence[int] | None = None
) -> Schedule:
    """The schedule in these lines, one a rank; without the rank of each stage, each has one.

    Raises ScheduleRefused, with the first few mistakes of one kind, for what cannot run.
    """
    stage_ranks = stage_ranks or stage_ranks_in_turn(len(lines))
    cells: list[list[Cell]] = []
    for checks in (unreadable, on_wrong_rank):
        refuse(checks(lines, stage_ranks), checks.__name__)
    for rank, line in enumerate(lines):
        cells.append([cell for word in split(line) if (cell := parse(word, rank))])
    schedule = Schedule(cells, stage_ranks, micro_batches)
    for check in (too_many, twice, both_kinds, missing, too_early):
        refuse(check(schedule), check.__name__)
    _ = schedule.timed  # refuses ranks that wait for one another
    return schedule


def parse(word: str, rank: int) -> Cell | None:
    """The cell that is written here, of the rank's only stage if it names none; None for others."""
    if not (match := CELL.fullmatch(word)):
        return None
    return Cell(match[2].upper(), int(match[1] or rank), int(match[3]))


def split(line: str) -> list[str]:
    """The words of a line, between spaces or commas."""
    return line.replace(",", " ").split()


def refuse(problems: Iterator[str], kind: str) -> None:
    """Raise ScheduleRefused if there are any."""
    found = list(problems)
    if found:
        more = [f"And {len(found) - MOST} more of this kind."] if len(found) > MOST else []
        raise ScheduleRefused("\n".join([*found[:MOST], *more]), kind)


def unreadable(lines: Sequence[str], stage_ranks: Sequence[int]) -> Iterator[str]:
    """Words that are no cell, and cells that do not say which of the rank's stages they mean."""
    several = len(stage_ranks) > len(lines)
    for rank, line in enumerate(lines):
        for place, word in enumerate(split(line), start=1):
            match = CELL.fullmatch(word)
            where = f"Rank {rank}, cell {place}: {word!r}"
            if word not in HOLES and not match:
                example = "2F0" if several else "F0"
                yield f"{where} is not F, B, I or W with a micro-batch, as in {example}, nor a dot."
            elif match and several and not match[1]:
                own = [stage for stage, owner in enumerate(stage_ranks) if owner == rank]
                words = " or ".join(f"{stage}{word}" for stage in own)
                yield f"{where} does not say which stage: rank {rank} has two or more, so {words}."


def on_wrong_rank(lines: Sequence[str], stage_ranks: Sequence[int]) -> Iterator[str]:
    """Cells of a stage that another rank has, or that is not there."""
    for rank, line in enumerate(lines):
        for place, word in enumerate(split(line), start=1):
            cell = parse(word, rank)
            stage = cell.stage if cell else rank
            if stage >= len(stage_ranks):
                most = len(stage_ranks) - 1
                yield f"Rank {rank}, cell {place}: no stage {stage} of {word}, only 0 to {most}."
            elif stage_ranks[stage] != rank:
                owner = stage_ranks[stage]
                yield f"Rank {rank}, cell {place}: stage {stage} of {word} is on rank {owner}."


def too_many(schedule: Schedule) -> Iterator[str]:
    """Micro-batches that are not there."""
    last = schedule.micro_batches - 1
    for rank, cells in enumerate(schedule.cells):
        for cell in cells:
            if cell.micro_batch > last:
                yield f"Rank {rank}: {schedule.name(cell)}, but the micro-batches are 0 to {last}."


def twice(schedule: Schedule) -> Iterator[str]:
    """A cell that is there again."""
    for rank, cells in enumerate(schedule.cells):
        for cell in dict.fromkeys(cells):
            if cells.count(cell) > 1:
                yield f"Rank {rank} has {schedule.name(cell)} {cells.count(cell)} times."


def both_kinds(schedule: Schedule) -> Iterator[str]:
    """A whole backward, and a half of it."""
    for rank, cells in enumerate(schedule.cells):
        for cell in cells:
            half = next((k for k in (INPUTS, WEIGHTS) if cell._replace(kind=k) in cells), None)
            if cell.kind == BACKWARD and half:
                names = schedule.name(cell), schedule.name(cell._replace(kind=half))
                yield f"Rank {rank} has {names[0]} and {names[1]}: a backward is B, or I and W."


def missing(schedule: Schedule) -> Iterator[str]:
    """What a stage lacks, a sentence for each rank."""
    for rank, cells in enumerate(schedule.cells):
        lacking = []
        for stage in (s for s, owner in enumerate(schedule.stage_ranks) if owner == rank):
            for number in range(schedule.micro_batches):
                halves = [Cell(kind, stage, number) for kind in (INPUTS, WEIGHTS)]
                forward, whole = (Cell(kind, stage, number) for kind in (FORWARD, BACKWARD))
                lacking += [forward] if forward not in cells else []
                if any(half in cells for half in halves):
                    lacking += [half for half in halves if half not in cells]
                elif whole not in cells:
                    lacking.append(whole)
        if lacking:
            yield f"Rank {rank} lacks {', '.join(map(schedule.name, lacking))}."


def too_early(schedule: Schedule) -> Iterator[str]:
    """A backward before its forward, or its weights' half before that of the inputs."""
    for rank, cells in enumerate(schedule.cells):
        for place, cell in enumerate(cells):
            kind = {BACKWARD: FORWARD, INPUTS: FORWARD, WEIGHTS: INPUTS}.get(cell.kind)
            needed = cell._replace(kind=kind) if kind else cell
            if needed not in cells[: place + 1]:
                names = schedule.name(cell), schedule.name(needed)
                yield f"Rank {rank} has {names[0]} before {names[1]}, which must come first."
