"""What a comparison with one process means, in words."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from manyranks.script_doctor.comparison import Averaging, Comparison, Kind, Parts
from manyranks.script_doctor.facts import (
    LIKELY,
    NOTE,
    WRONG,
    Facts,
    Finding,
    accumulated,
    calls_by_hand,
    lines_of,
    number_in_words,
)
from manyranks.script_doctor.gradient_rules import DDP_PAGE, averages_weights, near

BATCH_PAGE, CLIPPING_PAGE = "02_further_the_batch", "06_further_a_real_run"
APART = 0.01  # of a gradient
RANKS = re.compile(r"(?i)world|replicas|(num|n|nr)_?(ranks|proc)")
WEIGHTS = (
    "Each rank's gradient is multiplied by a number of its own before they are added: by a count, "
    "or by clipping, and the mean of clipped gradients is not the clipped mean."
)

# Rules that name a cause of what a comparison shows.
CAUSES = frozenset(
    {
        *("not-synchronised", "past-the-wrapper", "changed-after-ddp", "unused-parameters"),
        *("mean-of-unequal-batches", "synchronised-twice"),
        *("replicas-differ", "learning-rate-differs", "changed-after-backward"),
        *("optimizer-before-sharding", "same-rows", "rank-alone-in-a-collective"),
        *("graph-cut", "step-on-some-ranks", "gradients-on-some-ranks"),
    }
)


def one_process(facts: Facts) -> Iterator[Finding]:
    """A gradient that is not that of one process on the same rows."""
    result = facts.comparison
    lines = tuple(result.lines)
    by_hand = calls_by_hand(facts.of_each_rank("comm")[0], "gradient")
    sent_lines = (*(by_hand[0]["lines"] if by_hand else ()), *lines)
    hooked = bool(facts.of_any_rank("comm_hook"))
    if result.of_stages and result.of_stages.apart:
        yield Finding(
            "not-synchronised",
            WRONG,
            "The ranks that have the same stage of the pipeline use gradients that differ, of "
            f"{number_in_words(len(set(result.of_stages.apart)), 'parameter')}, such as "
            f"{result.of_stages.apart[0]}.",
            "They are replicas of this stage: average its gradients over them before the step.",
            lines,
            "11_model_parallel",
        )
    elif result.parts:
        yield parts_apart(result.parts, lines_of(*facts.of_one_rank("clip")[:1]) + lines)
    elif averages_in_groups(facts):
        return
    elif result.kind is Kind.SCALED:
        yield Finding(
            "gradient-scaled",
            NOTE if hooked else WRONG,
            f"{in_words(result)}.",
            cause_of_factor(result, facts.ranks),
            sent_lines if by_hand else backward_lines(facts) or lines,
            DDP_PAGE,
        )
    elif result.kind is Kind.NOT_COMPARED and (fact := scaled_means(result, facts)):
        yield Finding(
            "gradient-scaled",
            LIKELY,
            fact,
            "The gradient is not that of the mean loss over the rows of all ranks: average "
            "gradients of mean losses once, and scale neither.",
            sent_lines if by_hand else backward_lines(facts) or lines,
            DDP_PAGE,
        )
    elif result.kind is Kind.UPDATE:
        yield Finding(
            "update-differs",
            LIKELY,
            "The gradient of the first step is that of one process on the same "
            f"{result.rows} rows, and the weights after the step are not.",
            "Something besides the optimizer writes to the weights, or its state is another one.",
            lines,
            DDP_PAGE,
        )
    elif (
        result.averaging is Averaging.OWN
        and not is_reduced_in_backward(facts)
        and not (result.kind is Kind.NOT_COMPARED and facts.sends_parts(only_by_hand=True))
    ):
        yield Finding(
            "not-synchronised",
            NOTE if averages_weights(facts) else WRONG,
            f"Each rank uses its own gradient of {names_in_words(result)}.",
            "Nothing averages it: wrap all that is trained in DDP, and call the wrapper.",
            lines,
            DDP_PAGE,
        )
    elif result.averaging is Averaging.OF_ONE and not facts.of_any_rank("join"):
        rank = max(range(facts.ranks), key=lambda rank: abs(result.weights[rank]))
        yield Finding(
            "gradient-of-one-rank",
            WRONG,
            f"All ranks use the gradient of rank {rank} alone.",
            "What the others compute is thrown away: average the gradients of all ranks.",
            sent_lines,
            DDP_PAGE,
        )
    elif (
        result.kind is Kind.NOT_COMPARED
        and result.averaging is Averaging.WEIGHTED
        and not facts.of_any_rank("join")
    ):
        yield Finding(
            "gradients-weighted",
            NOTE,
            f"The gradient is {numbers_in_words(result.weights)} times the gradients of the ranks.",
            WEIGHTS,
            lines_of(*facts.of_one_rank("clip")[:1]) + sent_lines,
            CLIPPING_PAGE,
        )
    elif result.kind is Kind.OTHER:
        yield from of_other_direction(result, facts, hooked, sent_lines)


def parts_apart(parts: Parts, lines: tuple[str, ...]) -> Finding:
    """Parts of one gradient that the ranks multiply by numbers of their own."""
    what = "their shards of one gradient" if parts.name else "the gradients of their stages"
    such = f" (here of {parts.name})" if parts.name else ""
    fact = f"the ranks multiply {what} by numbers of their own{such}"
    advice = (
        "clip_grad_norm_ of PyTorch takes the norm over all ranks of a sharded parameter"
        if parts.name
        else "add up the squares of the stages' norms over the pipeline's ranks, and pass the root "
        "of the sum to clip_grads_with_norm_"
    )
    return Finding(
        "shards-scaled-apart",
        WRONG if parts.name else LIKELY,
        f"After backward, {fact}: {numbers_in_words(parts.factors)}. The norms of all that "
        f"each steps there had been {numbers_in_words(parts.norms)}.",
        f"What is clipped by the norm of a rank's own parts is no longer one gradient: {advice}.",
        lines,
        CLIPPING_PAGE,
    )


def of_other_direction(
    result: Comparison, facts: Facts, hooked: bool, lines: tuple[str, ...]
) -> Iterator[Finding]:
    """A gradient in another direction than that of one process."""
    fact = f"{in_words(result)}."
    unequal = len(set(result.shares)) > 1
    if result.averaging is Averaging.WEIGHTED:
        yield Finding(
            "gradients-weighted",
            NOTE if unequal or hooked else LIKELY,
            f"{fact} It is {numbers_in_words(result.weights)} times the gradients of the ranks.",
            WEIGHTS,
            lines_of(*facts.of_one_rank("clip")[:1]) + lines,
            CLIPPING_PAGE,
        )
    elif result.averaging is Averaging.MEAN and unequal:
        sizes = " and ".join(map(str, result.shares))
        yield Finding(
            "mean-of-unequal-batches",
            LIKELY,
            f"{fact} The ranks computed with {sizes} rows, and all count the same.",
            "The mean of their means weighs rows unequally: sum the loss, and divide by the count "
            "of all ranks.",
            lines,
            BATCH_PAGE,
        )
    elif result.drew:
        return  # other random numbers in one process
    elif result.averaging is Averaging.MEAN or hooked:
        yield Finding(
            "not-a-mean-over-rows",
            NOTE,
            f"{fact} It is the mean of what each rank computes with its own rows."
            if result.averaging is Averaging.MEAN
            else f"{fact} A communication hook changes it on the way.",
            "Often meant: a loss that compares the rows of a batch with each other, statistics of "
            "own rows, or steps without synchronisation depend on how rows are divided.",
            lines,
            BATCH_PAGE,
        )
    else:
        yield Finding(
            "gradient-differs",
            LIKELY,
            f"{fact}" + (" It differs between the ranks." if result.apart > APART else ""),
            "Something in the step is not what it is on one rank: compare it there, with the same "
            "rows.",
            lines,
            DDP_PAGE,
        )


def averages_in_groups(facts: Facts) -> bool:
    """Whether DDP averages over fewer than all ranks: then one process is more than a replica.

    Not if its groups have one rank each, and no call is made in larger ones either.
    """
    groups = [fact["ranks"] for fact in facts.of_any_rank("ddp")]
    is_alone = not any("," in fact["group"] for fact in facts.of_any_rank("comm"))
    return any(len(of) < facts.ranks and not (len(of) == 1 and is_alone) for of in groups)


def is_reduced_in_backward(facts: Facts) -> bool:
    """Whether a gradient may have been averaged before it reached its parameter.

    An autograd function of the script may reduce it, as in fully sharded training by hand.
    """
    in_backward = any(f["by"] == "backward" for f in facts.of_any_rank("comm"))
    return in_backward and not facts.of_any_rank("ddp")


def scaled_means(result: Comparison, facts: Facts) -> str:
    """How the ranks' own gradients, each of a mean loss, are scaled without need; "" if not.

    Where no process can be compared, a loss that is multiplied by as many as there are ranks may
    be meant. It counts only if the script says that the number is that of the ranks.
    """
    backwards = [
        [f for f in accumulated(facts_of_step) if f["kind"] == "backward"]
        for number in facts.optimizers[:1]
        for facts_of_step in facts.rounds(number)[:1]
    ]
    losses = backwards[0] if backwards else []
    if result.averaging is not Averaging.MEAN or facts.of_any_rank("clip") or not losses:
        return ""
    if not all(fact["means"] and near(fact["divisor"], losses[0]["divisor"]) for fact in losses):
        return ""
    divisor = losses[0]["divisor"] / len(losses)  # of the mean over the micro-batches
    if near(divisor, 1) and all(near(weight, 1) for weight in result.weights):
        return "The gradient is the sum of the ranks' own gradients, each of a mean loss."
    is_mean = all(near(weight, 1 / facts.ranks) for weight in result.weights)
    if is_mean and scales_loss_by_ranks(facts.source):
        by = {1 / facts.ranks: "multiplied by", facts.ranks: "divided by"}
        for value, words in by.items():
            if near(divisor, value):
                return (
                    f"The gradient is the mean of the ranks' own gradients, and each is that of a "
                    f"mean loss {words} {facts.ranks}."
                )
    return ""


def scales_loss_by_ranks(source: str) -> bool:
    """Whether a statement with a loss multiplies or divides by the number of ranks, by its name."""
    for statement in ast.walk(ast.parse(source)):
        if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr | ast.Return):
            continue
        for node in ast.walk(statement) if "loss" in ast.unparse(statement).lower() else ():
            factors: list[ast.expr] = []
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div):
                factors = [node.value]
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
                factors = [node.right] + [node.left] * isinstance(node.op, ast.Mult)
            if any(RANKS.search(ast.unparse(factor)) for factor in factors):
                return True
    return False


def cause_of_factor(result: Comparison, ranks: int) -> str:
    """What usually makes a gradient this long."""
    factor = result.difference.factor if result.difference else float(ranks)
    if near(factor, ranks):
        return "It is summed instead of averaged, or the loss is multiplied by the number of ranks."
    if near(factor * ranks, 1):
        return "It is averaged, and divided by the number of ranks once more."
    return "Something multiplies the loss or the gradient that does not on one rank."


def in_words(result: Comparison) -> str:
    """How the gradient compares, without an end."""
    difference = result.difference
    if difference is None:
        return ""
    of_one = "that of one process on the same " + (f"{result.rows} rows" if result.rows else "data")
    if result.kind is Kind.EQUAL:
        steps = "the first step" if result.steps == 1 else f"the first {result.steps} steps"
        all_of = result.parameters + result.left_out
        part = f", in {result.parameters} of {all_of} parameters" if result.left_out else ""
        return f"in {steps} the gradient is {of_one} (difference {difference.relative:.0e}{part})"
    if result.kind is Kind.SCALED:
        return f"The gradient is {difference.factor:.3f} times {of_one}, in the same direction"
    return (
        f"The gradient is not {of_one}: it is off by {percent(difference.relative)} "
        f"(cosine {difference.cosine:.4g}), in {names_in_words(result)}"
    )


def percent(share: float) -> str:
    """`0.031 %`, `31 %`, `410 %`."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def numbers_in_words(numbers: list[float]) -> str:
    """`0.5 and 1`, or `0.5, 1 and 2`; with more digits where it takes them to tell two apart."""
    texts = [[f"{number:.{digits}g}" for number in numbers] for digits in (3, 6)]
    *first, last = texts[len(set(texts[0])) < len(set(texts[1])) and len(set(texts[0])) == 1]
    return f"{', '.join(first)} and {last}"


def names_in_words(result: Comparison) -> str:
    """`3 of 8 parameters, most head.weight`, or `all 8 parameters`."""
    if len(result.names) == result.parameters:
        return f"all {result.parameters} parameters"
    most = f", such as {result.names[0]}" if result.names else ""
    return f"{len(result.names)} of {result.parameters} parameters{most}"


def backward_lines(facts: Facts) -> tuple[str, ...]:
    """The line of the last backward pass before the first step."""
    for fact in facts.of_each_rank("backward")[0]:
        return tuple(fact["lines"])
    return ()


def in_order(result: Comparison) -> list[str]:
    """What the comparison found in order."""
    if result.kind is Kind.EQUAL:
        return [in_words(result)]
    if result.of_stages and not result.of_stages.apart:
        steps = number_in_words(result.of_stages.steps, "recorded step")
        return [f"the ranks that have the same stage use equal gradients in {steps}"]
    if result.kind in (Kind.OTHER, Kind.NOT_COMPARED) and result.averaging is Averaging.MEAN:
        is_mean = all(near(weight, 1 / len(result.weights)) for weight in result.weights)
        what = "is" if is_mean else "has the direction of"
        return [f"the gradient {what} the mean of what the ranks compute, each alone"]
    return []


def not_compared(result: Comparison) -> list[str]:
    """Why a comparison with one process says nothing."""
    why = result.why_not
    if result.kind is Kind.OTHER and result.drew and result.averaging is not Averaging.OWN:
        why = "random numbers are drawn in a step, others on one rank"
    if result.rates:
        return [
            "the second step of one process: its learning rate is "
            f"{result.rates[1]:.3g} instead of {result.rates[0]:.3g}"
        ]
    return [f"the gradient of one process: {why}"] if why else []


def with_comparison(findings: list[Finding], facts: Facts) -> list[Finding]:
    """The findings of rules and comparison; a rule that names its cause takes on its words."""
    own = list(one_process(facts))
    causes = [f for f in findings if f.level != NOTE and f.rule in CAUSES]
    if not causes or not own:
        return findings + own
    cause, (effect,) = causes[0], own
    level = WRONG if effect.level == WRONG else cause.level
    both = replace(cause, level=level, fact=f"{cause.fact} {effect.fact}")
    return [both if finding is cause else finding for finding in findings]
