"""Is what the ranks do what one process would do? The gradients of the first steps, compared.

A gradient is compared twice: with that of one process on the rows of all ranks, and with the
gradients that the ranks' own backward passes made, before anything averaged them. The first finds
that it is wrong, the second why: each rank uses its own, only one is used, or they are averaged
properly and the loss is no mean over rows.
"""

from collections import Counter
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
    shards: list[float] = field(default_factory=list)  # factors of the ranks, if they differ
    rates: tuple[float, float] | None = None  # of the ranks and of one process, if they differ
    lines: list[str] = field(default_factory=list)


def compare(run: ReferenceRun) -> Comparison:
    """Compare the first steps of the ranks with one process, and say how they differ."""
    ranks = run.observed.steps
    if not ranks:
        return Comparison(Kind.NOT_COMPARED, "outside of backward, no step was made by all ranks")
    first = min(ranks, key=lambda key: (key[1], key[0]))
    alone = describe(Comparison(Kind.NOT_COMPARED), ranks[first])
    joined = run.joined()
    result = replace(alone, why_not=joined.why_not or "one process makes no step with its rows")
    for key in sorted(set(ranks) & set(joined.steps), key=lambda key: (key[1], key[0])):
        of_ranks, one, is_first = ranks[key], joined.steps[key][0], key[1] == 1
        if why_not := reason_against(of_ranks, one, is_first):
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
    if why_not := reason_against(of_ranks, one, is_first=True):
        raise LaunchRefused(f"Nothing can be compared: {why_not}.")
    return [gradient(record, one.names) for record in of_ranks], gradient(one, one.names)


def reason_against(of_ranks: list[StepRecord], one: StepRecord, is_first: bool) -> str:
    """Why a step of the ranks and one of the process cannot be compared; "" if it can."""
    first = of_ranks[0]
    if any(record.names != one.names for record in of_ranks):
        return "on one rank the optimizer has other parameters"
    if not one.names:
        return "none of its parameters is small enough to be kept"
    if any(first.weights[name].shape != one.weights[name].shape for name in first.names):
        return "its parameters have other shapes on one rank"
    if any(
        not vector.isfinite().all() for r in [*of_ranks, one] for vector in r.gradients.values()
    ):
        return "its gradients are nan or infinite"
    rows = Counter(row for record in of_ranks for row in record.rows)
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
    counts = reference.abs() > NEGLIGIBLE * reference.square().mean().sqrt()
    *of_ranks, one = [
        (flat(late.weights, names) - flat(early.weights, names))[counts]
        for early, late in zip(before, after, strict=True)
    ]
    return any(difference(update, one).relative > LATER_TOLERANCE for update in of_ranks)


def compare_step(of_ranks: list[StepRecord], one: StepRecord, is_first: bool) -> Comparison:
    """One step of the ranks beside that of one process."""
    names, tolerance = one.names, TOLERANCE if is_first else LATER_TOLERANCE
    if any(record.rounded for record in of_ranks):
        tolerance = ROUNDED_TOLERANCE
    whole = difference(gradient(of_ranks[0], names), gradient(one, names))
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
    result.lines = of_ranks[0].lines
    result.apart = max(difference(other, used[0]).relative for other in used)
    factors = [record.shards for record in of_ranks if record.shards is not None]
    if len(factors) == len(of_ranks) and max(factors) - min(factors) > SCALED * max(factors):
        result.shards = factors
    result.names, result.parameters = apart, len(names)
    result.left_out = of_ranks[0].parameters - len(names)
    used = [gradient(record, apart or names) for record in of_ranks]  # one cause, if some differ
    own = [gradient(record, apart or names, record.own) for record in of_ranks]
    norms = [vector.norm().item() for vector in own + used]
    if all(NO_GRADIENT < norm < float("inf") for norm in norms):
        tolerance = ROUNDED_TOLERANCE if any(r.rounded for r in of_ranks) else TOLERANCE
        result.averaging, result.weights = averaging(used, own, tolerance)
    return result


def averaging(
    used: list[torch.Tensor], own: list[torch.Tensor], tolerance: float
) -> tuple[Averaging, list[float]]:
    """What the gradients that the ranks use are made of, and with which weights on rank 0."""
    parts = torch.stack(own, dim=1)
    weights = torch.linalg.lstsq(parts, used[0][:, None]).solution[:, 0]
    rest = difference(parts @ weights, used[0]).relative
    beside_mean = difference(used[0], parts.mean(1))
    if beside_mean.is_parallel(tolerance):  # asked first: own gradients may be parallel, too
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
