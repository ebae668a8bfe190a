"""What loaders tell: which rows the ranks read, in which order, with which random numbers."""

from collections import Counter
from collections.abc import Iterator

from manyranks.script_doctor.facts import (
    LIKELY,
    NOTE,
    WRONG,
    Facts,
    Finding,
    equal,
    lines_of,
    share_in_words,
)

SAMPLERS = "04_samplers"
MIN_EQUAL_SHARE = 0.9  # of the forward passes
MIN_SHARED, MIN_SHARE = 4, 0.1  # rows, and of a rank's rows: below, equal rows may be chance


def same_rows(facts: Facts) -> Iterator[Finding]:
    """The same input on all ranks, or the same data set."""
    for model in sorted({f["model"] for f in facts.of_any_rank("forward") if f["trains"]}):
        forwards = facts.on_all_ranks("forward", model=model, trains=True)
        with_input = [f for f in forwards if f[0]["input"] is not None]
        if not with_input:
            continue
        readers = facts.division.first_readers
        same = [f for f in with_input if equal([f[rank]["input"] for rank in readers])]
        if len(readers) > 1 < len(with_input) and len(same) >= MIN_EQUAL_SHARE * len(with_input):
            forward, passes = lines_of(with_input[0][0]), facts.passes(trained=True)
            loader = lines_of(passes[0][0], key="made") if passes else ()
            sampler = passes[0][0].get("distributed") if passes else None
            if sampler and equal([(f.get("distributed") or {}).get("rank") for f in passes[0]]):
                return  # `samplers` names the cause
            yield Finding(
                "same-rows",
                WRONG,
                f"All {facts.ranks} ranks computed with the same rows in "
                f"{share_in_words(len(same), len(with_input), 'forward passes')}.",
                "The ranks repeat each other's work: give each its own rows, by a "
                "DistributedSampler, or by a random state of its own.",
                forward + loader if sampler else loader + forward,
                SAMPLERS,
            )
            return
    yield from whole_data_sets(facts)


def whole_data_sets(facts: Facts) -> Iterator[Finding]:
    """Each rank goes through all rows, in an order of its own."""
    for passes in facts.passes(trained=True) if len(facts.division.readers) > 1 else ():
        items = [f.get("items") for f in passes]
        plain = passes[0]["sampler"] in ("RandomSampler", "SequentialSampler")
        if passes[0]["own_batches"] or not plain or not equal([f.get("length") for f in passes]):
            continue
        rows = RowsRead(facts, passes)
        if (items[0] is not None and equal(items)) or rows.all_read_all:
            yield Finding(
                "same-rows",
                LIKELY,
                f"Each of the {facts.ranks} ranks reads all {passes[0]['length']} rows, "
                f"in an order of its own: the sampler is a {passes[0]['sampler']}.",
                "Each epoch repeats them: a DistributedSampler deals them out.",
                lines_of(passes[0], key="made") + lines_of(passes[0]),
                SAMPLERS,
            )
            return


class RowsRead:
    """Which rows the ranks read in a pass, all together."""

    def __init__(self, facts: Facts, passes: tuple[dict, ...]):
        self.of_ranks: list[list[int]] = []
        self.is_whole = True  # each rank came to the end, and all its rows were looked at
        for rank, fact in enumerate(passes):
            batches = batches_of(facts, rank, fact)
            ends = [f for f in facts.of_each_rank("ended")[rank] if is_of(f, fact)]
            self.of_ranks.append([row for batch in batches for row in batch["rows"]])
            looked_at = all(len(f["rows"]) == f["size"] for f in batches)
            self.is_whole &= bool(ends) and not ends[0]["cut"] and looked_at
        # Ranks that share one model's shards may read the same rows on purpose, as one reader.
        readers = {tuple(rows) for rows in self.of_ranks}
        counts = Counter(row for rows in readers for row in set(rows))
        self.shared = sum(count > 1 for count in counts.values())
        self.different = len(counts)
        # Rows that are equal, or drawn again, say nothing about shares.
        self.are_unique = all(len(set(rows)) == len(rows) > 0 for rows in self.of_ranks)
        self.all_read_all = (
            self.is_whole and self.are_unique and equal([sorted(rows) for rows in self.of_ranks])
        )

    def overlap(self, padding: int = 0) -> int:
        """How many rows several ranks read, more than a sampler repeats to fill shares up."""
        fewest = min(map(len, self.of_ranks))
        is_overlap = self.are_unique and self.shared >= max(MIN_SHARED, MIN_SHARE * fewest)
        return self.shared if is_overlap and self.shared > padding else 0


def samplers(facts: Facts) -> Iterator[Finding]:
    """Samplers whose arguments do not fit together, and epochs that nobody tells them."""
    distributed_passes = [
        of_ranks for of_ranks in facts.passes_on_all_ranks() if of_ranks[0].get("distributed")
    ]
    for of_ranks in distributed_passes:
        arguments = [f["distributed"] for f in of_ranks if f.get("distributed")]
        if len(arguments) < len(of_ranks):
            continue
        differing = [
            name
            for name in ("seed", "shuffle", "num_replicas", "epoch")
            if not equal([g[name] for g in arguments])
        ]
        ranks_given = [{arguments[rank]["rank"] for rank in of} for of in facts.division.readers]
        shared = len(set().union(*ranks_given)) < len(ranks_given)
        if differing or shared:
            name = differing[0] if differing else "rank"
            values = " and ".join(dict.fromkeys(str(g[name]) for g in arguments[:2]))
            yield Finding(
                "sampler-differs-by-rank",
                WRONG,
                f"The samplers of the ranks were given {name}={values}."
                if differing
                else f"Several ranks gave their samplers the same rank; all were {values}.",
                "Shares are disjoint only if all ranks shuffle alike, each with its own rank.",
                lines_of(of_ranks[0], key="made") + lines_of(of_ranks[0]),
                SAMPLERS,
            )
            break
    yield from other_rows(facts, distributed_passes)
    trained_passes = [
        of_ranks[0] for of_ranks in facts.passes(trained=True) if of_ranks[0].get("distributed")
    ]
    for number in sorted({fact["loader"] for fact in trained_passes}):
        passes = [fact for fact in trained_passes if fact["loader"] == number]
        epochs = [fact["distributed"]["epoch"] for fact in passes]
        if len(passes) > 1 and passes[0]["distributed"]["shuffle"] and equal(epochs):
            yield Finding(
                "no-set-epoch",
                LIKELY,
                f"The sampler was told of the same epoch, {epochs[0]}, in all {len(passes)} "
                "passes: each has the rows in the same order.",
                "Call sampler.set_epoch(epoch) before each pass.",
                lines_of(passes[-1]),
                SAMPLERS,
            )


def other_rows(facts: Facts, distributed_passes: list[tuple[dict, ...]]) -> Iterator[Finding]:
    """Rows that no rank reads, and data sets that are not the same on all ranks."""
    for of_ranks in distributed_passes:
        lines = lines_of(of_ranks[0], key="made") + lines_of(of_ranks[0])
        replicas = of_ranks[0]["distributed"]["num_replicas"]
        items = [f.get("items") for f in of_ranks]
        if replicas > facts.ranks:
            yield Finding(
                "rows-never-read",
                WRONG,
                f"The sampler deals the rows to {replicas} ranks, and there are {facts.ranks}.",
                "The other shares are never read: leave num_replicas out, or take the world size.",
                lines,
                SAMPLERS,
            )
            return
        if None not in items and not equal(items):
            whole = [f.get("whole") for f in of_ranks]
            is_split = whole[0] is not None and equal(whole)
            rows, length = RowsRead(facts, of_ranks), of_ranks[0].get("length", 0)
            padding = of_ranks[0]["distributed"]["total_size"] - length
            shared = rows.overlap(padding)
            place = next(
                a[0] for a, *others in zip(*items, strict=False) if [a] * len(others) != others
            )
            fact = (
                f"Row {place} of the data set that the sampler divides is not the same on all ranks"
            )
            if is_split:
                fact += ", though all have split the same rows"
            if shared:
                fact += f", and {shared} rows were read by several ranks in one pass"
                unread = length - rows.different
                same_length = equal([f.get("length") for f in of_ranks])
                if rows.is_whole and unread > 0 and same_length and not is_split:
                    fact += f" (and {unread} of {length} by none, if all hold the same rows)"
            yield Finding(
                "data-sets-differ",
                # Rows that a toy makes up may be anything.
                LIKELY if is_split or shared else NOTE,
                f"{fact}.",
                "Shares of different data sets overlap, and rows held out on one rank are trained "
                "on by another: split, shuffle and list files alike on all ranks, by one seed and "
                "sorted.",
                lines,
                SAMPLERS,
            )
            return


def shares(facts: Facts) -> Iterator[Finding]:
    """Rows that the script shares out by itself, and that several ranks read."""
    for passes in facts.passes(trained=True):
        fact = passes[0]
        if fact.get("distributed") or fact["own_batches"] or any(f.get("repeats") for f in passes):
            continue
        is_map = all(f.get("length") is not None for f in passes)
        rows = RowsRead(facts, passes)
        shared = rows.overlap()
        if shared and not rows.all_read_all:
            yield Finding(
                "shares-overlap",
                LIKELY if is_map else NOTE,  # a stream may be drawn at random
                f"In pass {fact['pass']} over this loader several ranks read {shared} of the "
                f"{rows.different} different rows.",
                "Shares are disjoint only if all ranks cut them from one order: shuffle by one "
                "seed, and list files sorted.",
                lines_of(fact, key="made") + lines_of(fact),
                SAMPLERS,
            )
            return


def evaluation(facts: Facts) -> Iterator[Finding]:
    """Metrics over rows that count twice, or over shares of unequal size."""
    comms = facts.of_each_rank("comm")[0]
    for passes in facts.passes(trained=False):
        sampler = passes[0].get("distributed")
        after = after_pass(facts, passes[0])
        gathers = [f for f in comms if f["by"] == "hand" and "gather" in f["op"]]
        extra = sampler["total_size"] - passes[0].get("length", 0) if sampler else 0
        if sampler and extra > 0 and not gathers:
            yield Finding(
                "evaluation-counts-padding",
                LIKELY,
                f"The sampler made {passes[0]['length']} rows into {sampler['total_size']} for the "
                f"evaluation, so that all ranks have as many: {extra} count twice.",
                "Divide the rows without padding, or leave the last ones out after gathering.",
                lines_of(passes[0]) + lines_of(passes[0], key="made"),
                SAMPLERS,
            )
            return
        sizes = [rows_of(facts, rank, f) for rank, f in enumerate(passes)]
        scalars = [f for f in after if f["kind"] == "comm" and f["value"] is not None]
        fractions = [f for f in scalars if f["value"] != int(f["value"])]
        if not equal(sizes) and len(scalars) == len(fractions) == 1:
            counts = " and ".join(map(str, sizes[:2]))
            yield Finding(
                "mean-of-unequal-batches",
                LIKELY,
                f"The ranks evaluate {counts} rows, and one number of each is reduced.",
                "The mean of their means weighs rows unequally: reduce the sum and the count.",
                lines_of(fractions[0]),
                SAMPLERS,
            )
            return


def after_pass(facts: Facts, pass_fact: dict) -> list[dict]:
    """What rank 0 did from this pass to the next training."""
    facts_after = []
    for fact in facts.between(0, pass_fact, None):
        if fact["kind"] == "step" or (fact["kind"] == "forward" and fact["trains"]):
            break
        facts_after.append(fact)
    return [
        f for f in facts_after if f["kind"] != "comm" or (f["by"] == "hand" and "reduce" in f["op"])
    ]


def rows_of(facts: Facts, rank: int, pass_fact: dict) -> int:
    """How many rows a rank read in this pass."""
    return sum(f["size"] or 0 for f in batches_of(facts, rank, pass_fact))


def batches_of(facts: Facts, rank: int, pass_fact: dict) -> list[dict]:
    """The batches that a rank had in this pass."""
    return [fact for fact in facts.of_each_rank("batch")[rank] if is_of(fact, pass_fact)]


def targets(facts: Facts) -> Iterator[Finding]:
    """A mean over each rank's own number of targets."""
    if facts.like_one_process:
        return
    losses = facts.on_all_ranks("targets", grad=True, reduction="mean")
    unequal = [f for f in losses if not equal([fact["counted"] for fact in f])]
    ignored = [f for f in unequal if any(fact["counted"] < fact["of"] for fact in f)]
    if ignored and len(unequal) > len(losses) / 2:
        counts = " and ".join(str(f["counted"]) for f in ignored[0][:2])
        yield Finding(
            "mean-of-unequal-batches",
            LIKELY,
            f"In {share_in_words(len(unequal), len(losses), 'batches')} the ranks take the mean "
            f"over numbers of targets of their own ({counts}).",
            "DDP's mean of their means weighs targets unequally: sum the loss, and divide by the "
            "count of all ranks.",
            lines_of(ignored[0][0]),
            "06_further_a_real_run",
        )


def draws(facts: Facts) -> Iterator[Finding]:
    """The same random numbers on all ranks, or in all workers."""
    # A GPU's generator would have drawn, if that is the one which the script seeds.
    dropout = [] if facts.of_any_rank("seeds_a_gpu") else facts.on_all_ranks("drew")
    readers = facts.division.first_readers  # ranks that share one model must draw alike
    if len(readers) == 1:
        return
    same = [f for f in dropout if equal([f[rank]["state"] for rank in readers])]
    if len(dropout) > 1 and len(same) >= MIN_EQUAL_SHARE * len(dropout):
        yield Finding(
            "equal-dropout",
            LIKELY,
            f"In {share_in_words(len(same), len(dropout), 'forward passes')} all ranks drew the "
            "same random numbers in the model.",
            "All drop the same units: seed each rank by its own number after the model is made.",
            lines_of(same[0][0]),
            SAMPLERS,
        )
    passes = facts.passes(trained=True)
    loader_lines = lines_of(passes[0][0], key="made") + lines_of(passes[0][0]) if passes else ()
    yield from augmentation(facts, loader_lines)
    yield from worker_seeds(facts, loader_lines)


def augmentation(facts: Facts, loader_lines: tuple[str, ...]) -> Iterator[Finding]:
    """Rows that are changed by the same random numbers on all ranks."""
    draws = facts.on_all_ranks("drawn", worker=None)
    for name in draws[0][0]["states"] if draws else ():
        readers = facts.division.first_readers
        states = [[of_ranks[rank]["states"].get(name) for rank in readers] for of_ranks in draws]
        if len(states) > 1 and all(equal(row) and row[0] is not None for row in states):
            yield Finding(
                "equal-augmentation",
                LIKELY,
                f"All ranks drew the same random numbers ({name}) while they read their rows.",
                "Augmentation repeats itself between the ranks: seed each by its own number.",
                lines_of(draws[0][0], key="at") + loader_lines,
                SAMPLERS,
            )
            return


def worker_seeds(facts: Facts, loader_lines: tuple[str, ...]) -> Iterator[Finding]:
    """Workers of loaders that draw the same random numbers."""
    firsts: list[dict[int, dict]] = []
    for facts_of_rank in facts.of_each_rank("drawn"):
        first: dict[int, dict] = {}
        for fact in facts_of_rank:
            if "worker" in fact:
                first.setdefault(fact["worker"], fact)
        firsts.append(first)
    if not all(firsts):
        return
    example = next(iter(firsts[0].values()))
    for name in example["states"]:
        in_rank = [[f["states"].get(name) for f in first.values()] for first in firsts]
        readers = facts.division.first_readers
        across = [firsts[rank][0]["states"].get(name) for rank in readers if 0 in firsts[rank]]
        inside = all(len(states) > 1 and equal(states) for states in in_rank)
        if inside or (len(across) == len(readers) and equal(across)):
            who = "All workers of a loader" if inside else "The workers of all ranks"
            yield Finding(
                "equal-worker-seeds" if inside or name != "torch" else "equal-augmentation",
                LIKELY,
                f"{who} drew the same random numbers ({name}).",
                "Augmentation repeats itself: seed from torch.initial_seed() in each worker, with "
                "another base seed on each rank.",
                lines_of(example, key="at") + loader_lines,
                SAMPLERS,
            )
            return


def orders_of_workers(facts: Facts) -> Iterator[Finding]:
    """Workers that persist, and give each pass the same rows in the same order."""
    passes = [of_ranks[0] for of_ranks in facts.passes(trained=True) if of_ranks[0]["persistent"]]
    for number in sorted({fact["loader"] for fact in passes}):
        orders = [
            [f["rows"] for f in batches_of(facts, 0, fact)]
            for fact in passes
            if fact["loader"] == number
        ]
        if len(orders) > 1 and len(orders[0]) > 1 and equal(orders):
            yield Finding(
                "same-order-of-workers",
                LIKELY,
                f"All {len(orders)} passes had the same rows in the same order; the loader's "
                "workers persist, and its data set has a set_epoch.",
                "What is set in the main process after the workers have started never reaches "
                "them: leave persistent_workers out, or share the epoch with them.",
                lines_of(passes[0], key="made") + lines_of(passes[0]),
                SAMPLERS,
            )


def is_of(fact: dict, pass_fact: dict) -> bool:
    """Whether a batch, or an end, is that of this pass."""
    return (fact["loader"], fact["pass"]) == (pass_fact["loader"], pass_fact["pass"])
