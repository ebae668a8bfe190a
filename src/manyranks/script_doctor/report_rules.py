"""What a script says of itself: results of one rank's share, and lines that every rank prints."""

import re
from collections import Counter
from collections.abc import Iterator

from manyranks.script_doctor.data_rules import SAMPLERS, RowsRead, batches_of, rows_of
from manyranks.script_doctor.facts import (
    LIKELY,
    NOTE,
    Facts,
    Finding,
    equal,
    lines_of,
    number_in_words,
)

DDP_PAGE = "02_distributed_data_parallel"
RESULT = re.compile(
    r"(?i)(?:acc|loss|err|score|ppl|perplex|auc|f1|iou|map\b|bleu|mse|mae|val|metric|correct)"
    r"[^\n]{0,40}?\d"
)
DECIMAL = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.]*\d)")
MIN_LINES = 3  # that all ranks print
MAX_DECIMALS = 6  # of a printed number, that are compared
MIN_DIGITS = 3  # of a printed number that is compared
SURE_DIGITS, SURE_NUMBERS = 5, 2  # no chance: as many digits, or as many numbers


def evaluations(facts: Facts) -> Iterator[Finding]:
    """A result that rank 0 says after it went through its share, and nobody sent anything."""
    for passes in facts.passes(trained=False):
        sizes = [rows_of(facts, rank, fact) for rank, fact in enumerate(passes)]
        if not all(sizes) or not is_shared_out(facts, passes):
            continue
        window = until_training(facts, 0, passes[0])
        said = [f for f in window if f["kind"] == "print" and RESULT.search(f["text"])]
        if not said or any(map(brings_results, window)):
            continue
        others = [
            rank
            for rank in range(1, facts.ranks)
            for f in until_training(facts, rank, passes[rank])
            if f["kind"] == "print" and f["lines"][:1] == said[0]["lines"][:1]
        ]
        who = "Each rank" if others else "Rank 0"
        yield Finding(
            "result-of-one-share",
            NOTE if others else LIKELY,
            f"{who} says “{shortened(said[0]['text'])}” after an evaluation in which it read "
            f"{sizes[0]} of {sum(sizes)} rows, and no rank had sent a result.",
            "What it computed of these rows is not the result of all: all_reduce the sum and the "
            "count, or evaluate all rows on rank 0.",
            lines_of(said[0], passes[0]),
            SAMPLERS,
        )
        return


def is_shared_out(facts: Facts, passes: tuple[dict, ...]) -> bool:
    """True if each rank evaluated rows of its own."""
    samplers = [f.get("distributed") for f in passes]
    if all(samplers):
        return len({f["rank"] for f in samplers if f}) == facts.ranks
    rows = RowsRead(facts, passes)
    return rows.are_unique and not rows.shared and len(set(map(tuple, rows.of_ranks))) > 1


def until_training(facts: Facts, rank: int, pass_fact: dict) -> list[dict]:
    """What a rank did from this pass to its next training."""
    after = facts.between(rank, pass_fact, None)
    trains = (f["kind"] == "step" or (f["kind"] == "forward" and f["trains"]) for f in after)
    end = next((place for place, is_training in enumerate(trains) if is_training), len(after))
    return after[:end]


def brings_results(fact: dict) -> bool:
    """True for a call that may bring results of other ranks: not DDP's buffers or FSDP's shards."""
    if fact["kind"] != "comm" or fact["op"].endswith("barrier"):
        return False
    return fact["by"] == "hand" or "reduce" in fact["op"]


def own_losses(facts: Facts) -> Iterator[Finding]:
    """A number that rank 0 says, and that is its own loss, not that of all ranks."""
    if not facts.of_any_rank("ddp"):
        return
    lines_of_others = {
        tuple(f["lines"][:1]) for prints in facts.of_each_rank("print")[1:] for f in prints
    }
    losses = [[f["loss"] for f in of_rank] for of_rank in facts.of_each_rank("backward")]
    matches: list[tuple[dict, str, str]] = []
    seen = begin = said = 0
    is_new_pass = False
    for fact in facts.of_ranks[0]:
        if fact["kind"] == "pass":
            is_new_pass = True
        elif fact["kind"] == "backward":
            begin = seen if is_new_pass else begin
            is_new_pass, seen = False, seen + 1
        elif fact["kind"] == "print" and tuple(fact["lines"][:1]) not in lines_of_others:
            spans = [(seen - 1, seen), (begin, seen), (said, seen)]
            matches += [(fact, *match) for match in own_numbers(fact["text"], losses, spans)][:1]
            said = seen
    digits = max((len(number.strip("-0.").replace(".", "")) for _, number, _ in matches), default=0)
    if digits < SURE_DIGITS and len(matches) < SURE_NUMBERS:
        return
    fact, number, of_all = matches[0]
    yield Finding(
        "loss-of-one-rank",
        NOTE,
        f"Rank 0 says {number} as a loss, which is that of its own rows; over all ranks it is "
        f"{of_all}.",
        "It is a noisier number than that of the whole batch: to log that, all_reduce a detached "
        "copy and divide by the number of ranks.",
        lines_of(fact),
        DDP_PAGE,
    )


def own_numbers(
    text: str, losses: list[list[float | None]], spans: list[tuple[int, int]]
) -> Iterator[tuple[str, str]]:
    """Each number in a text that is the mean or sum of rank 0's losses in a span, and not of all's.

    With it, the same of all ranks.
    """
    for number, decimals in printed_numbers(text):
        for begin, end in spans:
            of_ranks = [of_rank[begin:end] for of_rank in losses]
            if (
                begin < 0
                or begin >= end
                or any(len(of) < end - begin or None in of for of in of_ranks)
            ):
                continue
            sums = [sum(loss for loss in of if loss is not None) for of in of_ranks]
            for count in {1, end - begin}:
                own, of_all = (value / count for value in (sums[0], sum(sums) / len(sums)))
                texts = f"{own:.{decimals}f}", f"{of_all:.{decimals}f}"
                if texts[0] == number != texts[1]:
                    yield texts
                    break


def printed_numbers(text: str) -> Iterator[tuple[str, int]]:
    """Each number in a text that has digits enough to be known by them, and its decimals."""
    for printed in DECIMAL.findall(text):
        fraction = printed.partition(".")[2]
        decimals = min(len(fraction), MAX_DECIMALS)
        number = f"{float(printed):.{decimals}f}" if len(fraction) > decimals else printed
        if len(number.strip("-0.").replace(".", "")) >= MIN_DIGITS:
            yield number, decimals


def sums_of_ranks(facts: Facts) -> Iterator[Finding]:
    """A sum over all ranks that is said undivided, or divided by what rank 0 alone has counted."""
    of_all_ranks = {id(passes[0]): passes for passes in facts.passes_on_all_ranks()}
    sums = {id(calls[0]): calls for calls in zip(*map(scalar_sums, facts.of_ranks), strict=False)}
    losses: list[list[dict]] = facts.of_each_rank("backward")
    passes: tuple[dict, ...] = ()
    since: list[tuple[dict, ...]] = []  # sums since the pass began
    backwards = 0
    for fact in facts.of_ranks[0]:
        backwards += fact["kind"] == "backward"
        if fact["kind"] == "pass":
            passes, since = of_all_ranks.get(id(fact), ()), []
        elif id(fact) in sums and equal([call["lines"][:1] for call in sums[id(fact)]]):
            since.append(sums[id(fact)])
        elif fact["kind"] == "print" and passes and is_shared_out(facts, passes):
            own = [f["loss"] for of in losses for f in of[backwards - 1 : backwards] if f["means"]]
            for calls in since:
                for said, right, divisor in wrong_means(facts, passes, calls, own, fact["text"]):
                    yield Finding(
                        "sum-without-its-count",
                        LIKELY,
                        f"Rank 0 says {said}: the sum over {facts.ranks} ranks{divisor}. Over all "
                        f"ranks it is {right}.",
                        "Reduce the count along with the sum, and divide the one by the other.",
                        lines_of(fact, calls[0]),
                        SAMPLERS,
                    )
                    return


def scalar_sums(facts_of_rank: list[dict]) -> list[dict]:
    """The calls by which a rank reduces one number."""
    return [
        f
        for f in facts_of_rank
        if f["kind"] == "comm" and f["by"] == "hand" and f.get("value") is not None
        if f["op"] in ("all_reduce", "reduce")
    ]


def wrong_means(
    facts: Facts,
    passes: tuple[dict, ...],
    calls: tuple[dict, ...],
    losses: list[float],
    text: str,
) -> Iterator[tuple[str, str, str]]:
    """A number in a text that a reduced sum gives with a wrong divisor; the right one; in words."""
    total = sum(call["value"] for call in calls)
    rows = [rows_of(facts, rank, fact) for rank, fact in enumerate(passes)]
    batches = [len(batches_of(facts, rank, fact)) for rank, fact in enumerate(passes)]
    divisors = [
        (rows[0], sum(rows), f", divided by the {rows[0]} rows of rank 0"),
        (batches[0], sum(batches), f", divided by the {batches[0]} batches of rank 0"),
    ]
    if len(losses) == facts.ranks and all(
        abs(call["value"] - loss) <= 1e-6 * abs(loss)
        for call, loss in zip(calls, losses, strict=True)
    ):
        divisors.append((1, facts.ranks, " of their mean losses"))
    for number, decimals in printed_numbers(text):
        for factor in (1, 100):
            texts = [f"{factor * total / n:.{decimals}f}" for _, n, _ in divisors if n]
            texts.append(f"{factor * total / facts.ranks:.{decimals}f}")
            for wrong, right, words in divisors:
                if wrong and f"{factor * total / wrong:.{decimals}f}" == number not in texts:
                    yield number, f"{factor * total / right:.{decimals}f}", words


def equal_lines(facts: Facts) -> Iterator[Finding]:
    """Lines that every rank prints."""
    texts = [
        Counter(f["text"] for f in prints if f["by"] == "print")
        for prints in facts.of_each_rank("print")
    ]
    common = texts[0].copy()
    for of_rank in texts[1:]:
        common &= of_rank
    if common.total() < MIN_LINES:
        return
    first = next(f for f in facts.of_each_rank("print")[0] if f["text"] in common)
    yield Finding(
        "printed-by-all-ranks",
        NOTE,
        f"All {facts.ranks} ranks print the same "
        f"{number_in_words(common.total(), 'line')}, first “{shortened(first['text'])}”.",
        "Print on rank 0 alone what is the same on all.",
        lines_of(first),
        DDP_PAGE,
    )


def shortened(text: str) -> str:
    """The first line of a text, or its beginning."""
    line = text.splitlines()[0]
    return line if len(line) <= 60 else f"{line[:57]}…"
