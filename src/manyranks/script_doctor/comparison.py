"""Is what the ranks do what one process would do? The gradients of the first steps, compared.

A gradient is compared twice: with that of one process on the rows of all ranks, and with the
gradients that the ranks' own backward passes made, before anything averaged them. The first finds
that it is wrong, the second why: each rank uses its own, only one is used, or they are averaged
properly and the loss is no mean over rows.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import Enum

import torch

from manyranks.errors import LaunchRefused
from manyranks.script_doctor.reference_run import ReferenceRun, StepRecord

TOLERANCE = 1e-4  # of the norm: rounding, and sums in another order
LATER_TOLERANCE = 1e-2  # after a step, which may have made rounding errors larger
ROUNDED_TOLERANCE = 0.05  # if something is computed with 16 bits
DIRECTION = 1e-6  # of 1 - cosine
SCALED = 0.01  # of a factor: a step that depends on how rows are divided makes smaller ones
NO_GRADIENT = 1e-12
NEGLIGIBLE = 1e-4  # of the root mean square: below it a gradient may be rounding alone
ROUNDED_NEGLIGIBLE = 0.3  # the same, with 16 bits
NO_WEIGHT = 0.01  # of a rank's gradient in the one that is used


class Kind(Enum):
    """How the gradient of the ranks compares with that of one process."""

    EQUAL = "equal"
    SCALED = "the same direction, another length"
    OTHER = "another direction"
    UPDATE = "equal, but the weights after the step are not"
    NOT_COMPARED = "not compared"


class Averaging(Enum):
    """What the gradient of the ranks is made of."""

    MEAN = "the ranks' own gradients, all with the same weight"
    OWN = "on each rank its own"
    OF_ONE = "that of one rank"
    WEIGHTED = "the ranks' own gradients, with weights of their own"
    OTHER = "something else"
    UNKNOWN = "not seen"


@dataclass
class Difference:
    """Two vectors: `factor` is the length of the first along the second, over the second's."""

    factor: float
    cosine: float
    relative: float  # |a - b| / |b|

    def is_parallel(self, tolerance: float = TOLERANCE) -> bool:
        """Whether both have the same direction, up to such an error."""
        return 1 - self.cosine < max(DIRECTION, tolerance**2)


@dataclass
class Parts:
    """What each rank multiplied its parts of the gradients by, between backward and the step."""

    factors: list[float]
    norms: list[float]  # of all its parts, before
    name: str = ""  # of the parameter; empty if that is of a rank's stage as a whole


@dataclass
class Replicas:
    """Ranks that hold the same stage: the parameters whose gradients differ."""

    steps: int = 0  # in which they were compared
    apart: list[str] = field(default_factory=list)


@dataclass
class Comparison:
    """The result for the first steps; `why_not` says why none could be compared."""

    kind: Kind
    why_not: str = ""
    steps: int = 0  # in which that is so
    rows: int = 0  # of a step, on all ranks together
    difference: Difference | None = None
    names: list[str] = field(default_factory=list)  # of parameters that differ, most first
    parameters: int = 0  # that were compared
    left_out: int = 0  # more, for which there was no room
    shares: list[int] = field(default_factory=list)  # rows of each rank in the step
    drew: bool = False
    apart: float = 0.0  # how far the ranks' gradients are from each other, relative
    averaging: Averaging = Averaging.UNKNOWN
    weights: list[float] = field(default_factory=list)  # of the ranks' own gradients
    parts: Parts | None = None  # of a model that is cut, if the ranks scale theirs apart
    of_stages: Replicas | None = None
    rates: tuple[float, float] | None = None  # of the ranks and of one process, if they differ
    lines: list[str] = field(default_factory=list)


def compare(run: ReferenceRun) -> Comparison:
    """Compare the first steps of the ranks with one process, and say how they differ."""
    result = compare_steps(run)
    steps = run.observed.steps.values()
    result.parts = next(filter(None, map(parts_scaled_apart, steps)), None)
    if run.division.stages > 1:
        result.of_stages = replicas_of_stages(list(steps))
    if len(run.division.readers) < run.ranks:
        result.averaging = Averaging.UNKNOWN  # a rank's own gradient is one of a part of the model
    return result


def compare_steps(run: ReferenceRun) -> Comparison:
    """The comparison up to the first step that differs."""
    ranks = run.observed.steps
    if not ranks:
        return Comparison(Kind.NOT_COMPARED, "outside of backward, no step was made by all ranks")
    first = min(ranks, key=lambda key: (key[1], key[0]))
    alone = describe(Comparison(Kind.NOT_COMPARED), ranks[first])
    joined = run.joined()
    result = replace(alone, why_not=joined.why_not or "one process makes no step with its rows")
    for key in sorted(set(ranks) & set(joined.steps), key=lambda key: (key[1], key[0])):
        of_ranks, one, is_first = ranks[key], joined.steps[key][0], key[1] == 1
        if why_not := reason_against(of_ranks, one, is_first, run.division.first_readers):
            return result if result.kind is Kind.EQUAL else replace(alone, why_not=why_not)
        if not is_first:
            before = key[0], key[1] - 1
            earlier = [*ranks[before], joined.steps[before][0]]
            result.rates = other_rates(earlier[0], earlier[-1])
            if result.rates:
                return result
            if other_update(earlier, [*of_ranks, one]):
                return replace(result, kind=Kind.UPDATE)
        found = compare_step(of_ranks, one, is_first)
        if found.kind is not Kind.EQUAL:
            return found
        result = result if result.kind is Kind.EQUAL else found
        result.steps = key[1]
    return result


def gradients_of_first_step(run: ReferenceRun) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The gradients of all ranks and of one process; raises LaunchRefused with the reason."""
    joined = run.joined()
    both = sorted(set(run.observed.steps) & set(joined.steps), key=lambda key: (key[1], key[0]))
    if not both:
        raise LaunchRefused(f"Nothing can be compared: {joined.why_not or 'no step was made'}.")
    of_ranks, one = run.observed.steps[both[0]], joined.steps[both[0]][0]
    if why_not := reason_against(of_ranks, one, True, run.division.first_readers):
        raise LaunchRefused(f"Nothing can be compared: {why_not}.")
    return [gradient(record, one.names) for record in of_ranks], gradient(one, one.names)


def reason_against(
    of_ranks: list[StepRecord], one: StepRecord, is_first: bool, readers: list[int]
) -> str:
    """Why a step of the ranks and one of the process cannot be compared; "" if it can.

    `readers` are the ranks whose rows the process had.
    """
    first = of_ranks[0]
    if any(record.names != one.names for record in of_ranks):
        return "on one rank the optimizer has other parameters"
    if not one.names:
        return "none of its parameters is small enough to be kept"
    if any(first.weights[name].shape != one.weights[name].shape for name in first.names):
        return "its parameters have other shapes on one rank"
    if any(r.weights[name].isnan().any() for r in of_ranks for name in r.names):
        return "its weights are nan, or the parts of the ranks make no whole tensors"
    if any(
        not vector.isfinite().all() for r in [*of_ranks, one] for vector in r.gradients.values()
    ):
        return "its gradients are nan or infinite"
    if not any(vector.any() for r in [*of_ranks, one] for vector in r.gradients.values()):
        return "no parameter of its optimizer gets a gradient"
    rows = Counter(row for rank in readers for row in of_ranks[rank].rows)
    if rows != Counter(one.rows):
        return (
            "one process takes other rows to this step: they come from no DataLoader, depend on "
            "the rank, or it goes another way"
        )
    if is_first and not close(flat(first.weights, one.names), flat(one.weights, one.names)):
        return "its weights before the first step are other ones on one rank"
    return ""


def other_rates(record: StepRecord, one: StepRecord) -> tuple[float, float] | None:
    """The learning rates of a rank and of one process, if they are not the same."""
    pairs = zip(record.rates, one.rates, strict=True)
    return next(((a, b) for a, b in pairs if abs(a - b) > TOLERANCE * abs(b)), None)


def other_update(before: list[StepRecord], after: list[StepRecord]) -> bool:
    """Whether a step changed the weights of a rank in another way than those of one process.

    The last record of each list is the process's. Where a gradient is nearly zero, rounding may
    turn it around, and Adam makes a whole step of it: such weights do not count.
    """
    names = before[0].names
    reference = gradient(before[-1], names)
    is_rounded = any(record.rounded for record in before + after)
    negligible, tolerance = (
        (ROUNDED_NEGLIGIBLE, ROUNDED_TOLERANCE) if is_rounded else (NEGLIGIBLE, LATER_TOLERANCE)
    )
    counts = reference.abs() > negligible * reference.square().mean().sqrt()
    *of_ranks, one = [
        (flat(late.weights, names) - flat(early.weights, names))[counts]
        for early, late in zip(before, after, strict=True)
    ]
    return any(difference(update, one).relative > tolerance for update in of_ranks)


def compare_step(of_ranks: list[StepRecord], one: StepRecord, is_first: bool) -> Comparison:
    """One step of the ranks beside that of one process."""
    names, tolerance = one.names, TOLERANCE if is_first else LATER_TOLERANCE
    if any(record.rounded for record in of_ranks):
        tolerance = ROUNDED_TOLERANCE
    of_each = [difference(gradient(record, names), gradient(one, names)) for record in of_ranks]
    whole = max(of_each, key=lambda of_rank: of_rank.relative)
    found = describe(Comparison(Kind.OTHER, steps=1, rows=len(one.rows)), of_ranks)
    if whole.relative < tolerance and found.apart < tolerance:
        found.kind = Kind.EQUAL
    elif (
        whole.is_parallel(tolerance) and abs(whole.factor - 1) > SCALED and found.apart < TOLERANCE
    ):
        found.kind = Kind.SCALED
    relative = {
        name: max(
            difference(gradient(record, [name]), gradient(one, [name])).relative
            for record in of_ranks
        )
        for name in names
    }
    differing = [name for name in names if relative[name] > tolerance]
    found.names = sorted(differing, key=lambda name: -relative[name])
    found.difference = whole
    return found


def describe(result: Comparison, of_ranks: list[StepRecord]) -> Comparison:
    """What a step of the ranks alone tells: shares, and what its gradient is made of."""
    names = of_ranks[0].names
    result.lines = of_ranks[0].lines
    if any(record.names != names for record in of_ranks):
        return result
    used = [gradient(record, names) for record in of_ranks]
    apart = [
        name
        for name in names
        if any(not close(gradient(r, [name]), gradient(of_ranks[0], [name])) for r in of_ranks)
    ]
    result.shares = [len(record.rows) for record in of_ranks]
    result.drew = any(record.drew for record in of_ranks)
    result.apart = max(difference(other, used[0]).relative for other in used)
    result.names, result.parameters = apart, len(names)
    result.left_out = of_ranks[0].parameters - len(names)
    used = [gradient(record, apart or names) for record in of_ranks]  # one cause, if some differ
    own = [gradient(record, apart or names, record.own) for record in of_ranks]
    norms = [vector.norm().item() for vector in own + used]
    if all(NO_GRADIENT < norm < float("inf") for norm in norms):
        tolerance = ROUNDED_TOLERANCE if any(r.rounded for r in of_ranks) else TOLERANCE
        result.averaging, result.weights = averaging(used, own, tolerance)
        if result.apart > tolerance and result.averaging is not Averaging.OWN:
            result.averaging = Averaging.OTHER  # no one gradient that all use
    return result


def replicas_of_stages(steps: list[list[StepRecord]]) -> Replicas | None:
    """The gradients of the ranks that hold the same stage; None if each stage is on one rank."""
    replicas = Replicas()
    for of_ranks in steps:
        by_names: dict[tuple[str, ...], list[StepRecord]] = {}
        for record in of_ranks:
            by_names.setdefault(tuple(record.names), []).append(record)
        several = [
            records
            for names, records in by_names.items()
            if len(records) > 1 and not records[0].cut.issuperset(names)
        ]
        for first, *others in several:
            replicas.apart += [
                name
                for name in first.names
                if name not in first.cut
                if any(not close(gradient(o, [name]), gradient(first, [name])) for o in others)
            ]
        replicas.steps += bool(several)
    return replicas if replicas.steps else None


def parts_scaled_apart(of_ranks: list[StepRecord]) -> Parts | None:
    """The factors by which ranks multiply their parts of one gradient, if they are not the same."""
    tolerance = SCALED if any(record.rounded for record in of_ranks) else TOLERANCE
    of_names: dict[str, dict[int, float]] = {}
    for rank, record in enumerate(of_ranks):
        for name, factor in zip(record.names, record.factors, strict=True):
            if factor is not None:
                of_names.setdefault(name, {})[rank] = factor
    worst = max(of_names, key=lambda name: spread(of_names[name].values()), default="")
    if worst and spread(of_names[worst].values()) > tolerance:
        factors, name = of_names[worst], worst
    else:  # stages of a pipeline have no parameter in common
        factors, name = {}, ""
        for rank, record in enumerate(of_ranks):
            own = [factor for factor in record.factors if factor is not None]
            if own and spread(own) <= tolerance:
                factors[rank] = own[0]
        if spread(factors.values()) <= tolerance:
            return None
    return Parts([*factors.values()], [of_ranks[rank].norm for rank in factors], name)


def spread(factors: Collection[float]) -> float:
    """How far these are from each other, relative to the largest."""
    largest = max(map(abs, factors), default=0)
    return (max(factors) - min(factors)) / largest if largest else 0


def averaging(
    used: list[torch.Tensor], own: list[torch.Tensor], tolerance: float
) -> tuple[Averaging, list[float]]:
    """What the gradients that the ranks use are made of, and with which weights on rank 0."""
    parts = torch.stack(own, dim=1)
    weights = torch.linalg.lstsq(parts, used[0][:, None]).solution[:, 0]
    rest = difference(parts @ weights, used[0]).relative
    beside_mean = difference(used[0], parts.mean(1))
    is_one = difference(used[-1], used[0]).relative < tolerance
    if is_one and beside_mean.is_parallel(tolerance):  # first: own gradients may be parallel, too
        kind = Averaging.MEAN
    elif all(difference(*pair).is_parallel() for pair in zip(used, own, strict=True)):
        kind = Averaging.OWN
    elif rest > tolerance:
        kind = Averaging.OTHER
    elif (weights.abs() > NO_WEIGHT * weights.abs().max()).sum() == 1:
        kind = Averaging.OF_ONE
    else:
        kind = Averaging.WEIGHTED
    return kind, weights.tolist()


def difference(left: torch.Tensor, right: torch.Tensor) -> Difference:
    """How far two vectors are apart; of vectors that are nearly zero, not at all."""
    norms = left.norm().item(), right.norm().item()
    if max(norms) < NO_GRADIENT:
        return Difference(1.0, 1.0, 0.0)
    dot, length = (left @ right).item(), max(norms[1], NO_GRADIENT)
    return Difference(
        dot / length**2,
        dot / max(norms[0] * norms[1], NO_GRADIENT),
        ((left - right).norm() / length).item(),
    )


def close(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two vectors are equal up to rounding."""
    return left.shape == right.shape and difference(left, right).relative < TOLERANCE


def flat(tensors: dict[str, torch.Tensor], names: list[str]) -> torch.Tensor:
    """All these tensors in a row."""
    return torch.cat([tensors[name] for name in names] or [torch.zeros(0, dtype=torch.double)])


def gradient(
    record: StepRecord, names: list[str], of: dict[str, torch.Tensor] | None = None
) -> torch.Tensor:
    """The gradient of a step in a row, or what else the record has; what is missing is zero."""
    tensors = record.gradients if of is None else of
    parts = [
        tensors[name] if tensors[name].numel() else torch.zeros_like(record.weights[name])
        for name in names
    ]
    return torch.cat(parts or [torch.zeros(0, dtype=torch.double)])
