"""What loaders tell: which rows the ranks read, in which order, with which random numbers."""

from collections.abc import Iterator

from manyranks.script_doctor.facts import (
    LIKELY,
    NOTE,
    WRONG,
    Facts,
    Finding,
    equal,
    in_counts,
    lines_of,
)

SAMPLERS = "04_samplers"
MIN_EQUAL_SHARE = 0.9  # of the forward passes


def same_rows(facts: Facts) -> Iterator[Finding]:
    """The same input on all ranks, or the same data set."""
    for model in sorted({f["model"] for f in facts.of_any_rank("forward") if f["trains"]}):
        forwards = facts.beside("forward", model=model, trains=True)
        seen = [f for f in forwards if f[0]["input"] is not None]
        if not seen or (seen[0][0]["sharded"] and not seen[0][0]["type"].startswith("FSDP")):
            continue
        same = [f for f in seen if equal([one["input"] for one in f])]
        if len(seen) > 1 and len(same) >= MIN_EQUAL_SHARE * len(seen):
            passes = facts.passes(trained=True)
            yield Finding(
                "same-rows",
                WRONG,
                f"All {facts.ranks} ranks computed with the same rows in "
                f"{in_counts(len(same), len(seen), 'forward passes')}.",
                "The ranks repeat each other's work: give each its own rows, by a "
                "DistributedSampler, or by a random state of its own.",
                lines_of(seen[0][0]) + (lines_of(passes[0][0], key="made") if passes else ()),
                SAMPLERS,
            )
            return
    yield from whole_data_sets(facts)


def whole_data_sets(facts: Facts) -> Iterator[Finding]:
    """Each rank goes through all rows, in an order of its own."""
    for begun in facts.passes(trained=True):
        first = [f.get("first") for f in begun]
        if begun[0]["own_batches"] or first[0] is None or not equal(first):
            continue
        plain = begun[0]["sampler"] in ("RandomSampler", "SequentialSampler")
        if plain and equal([f.get("length") for f in begun]):
            yield Finding(
                "same-rows",
                LIKELY,
                f"Each of the {facts.ranks} ranks reads all {begun[0]['length']} rows, in an order "
                f"of its own: the sampler is a {begun[0]['sampler']}.",
                "Each epoch repeats them: a DistributedSampler deals them out.",
                lines_of(begun[0], key="made") + lines_of(begun[0]),
                SAMPLERS,
            )
            return


def samplers(facts: Facts) -> Iterator[Finding]:
    """Samplers whose arguments do not fit together, and epochs that nobody tells them."""
    begun = [one for one in facts.beside("pass") if one[0].get("distributed")]
    for one in begun:
        given = [f["distributed"] for f in one if f.get("distributed")]
        if len(given) < len(one):
            continue
        differing = [
            name
            for name in ("seed", "shuffle", "num_replicas", "epoch")
            if not equal([g[name] for g in given])
        ]
        shared = len({g["rank"] for g in given}) < len(given)
        if differing or shared:
            name = differing[0] if differing else "rank"
            values = " and ".join(str(g[name]) for g in given[:2])
            yield Finding(
                "sampler-differs-by-rank",
                WRONG,
                f"The samplers of the ranks were given {name}={values}.",
                "Shares are disjoint only if all ranks shuffle alike, each with its own rank.",
                lines_of(one[0], key="made") + lines_of(one[0]),
                SAMPLERS,
            )
            break
    yield from other_rows(facts, begun)
    trained = [one[0] for one in facts.passes(trained=True) if one[0].get("distributed")]
    for number in sorted({one["loader"] for one in trained}):
        passes = [one for one in trained if one["loader"] == number]
        epochs = [one["distributed"]["epoch"] for one in passes]
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


def other_rows(facts: Facts, begun: list[tuple[dict, ...]]) -> Iterator[Finding]:
    """Rows that no rank reads, and data sets that are not the same on all ranks."""
    for one in begun:
        lines = lines_of(one[0], key="made") + lines_of(one[0])
        replicas = one[0]["distributed"]["num_replicas"]
        first = [f.get("first") for f in one]
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
        if None not in first and not equal(first):
            whole = [f.get("whole") for f in one]
            split = whole[0] is not None and equal(whole)
            yield Finding(
                "data-sets-differ",
                LIKELY if split else NOTE,  # rows that a toy makes up may be anything
                "The first row of the data set that the sampler divides is not the same on all "
                + ("ranks, though all have split the same rows." if split else "ranks."),
                "Shares of different data sets overlap, and rows held out on one rank are trained "
                "on by another: split and shuffle by one seed on all ranks.",
                lines,
                SAMPLERS,
            )
            return


def evaluation(facts: Facts) -> Iterator[Finding]:
    """Metrics over rows that count twice, or over shares of unequal size."""
    comms = facts.of_each_rank("comm")[0]
    for begun in facts.passes(trained=False):
        sampler = begun[0].get("distributed")
        after = after_pass(facts, begun[0])
        gathers = [f for f in comms if f["by"] == "hand" and "gather" in f["op"]]
        extra = sampler["total_size"] - begun[0].get("length", 0) if sampler else 0
        if sampler and extra > 0 and not gathers:
            yield Finding(
                "evaluation-counts-padding",
                LIKELY,
                f"The sampler made {begun[0]['length']} rows into {sampler['total_size']} for the "
                f"evaluation, so that all ranks have as many: {extra} count twice.",
                "Divide the rows without padding, or leave the last ones out after gathering.",
                lines_of(begun[0]) + lines_of(begun[0], key="made"),
                SAMPLERS,
            )
            return
        sizes = [rows_of(facts, rank, f) for rank, f in enumerate(begun)]
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


def after_pass(facts: Facts, begun: dict) -> list[dict]:
    """What rank 0 did from this pass to the next training."""
    found = []
    for fact in facts.between(0, begun, None):
        if fact["kind"] == "step" or (fact["kind"] == "forward" and fact["trains"]):
            break
        found.append(fact)
    return [f for f in found if f["kind"] != "comm" or (f["by"] == "hand" and "reduce" in f["op"])]


def rows_of(facts: Facts, rank: int, begun: dict) -> int:
    """How many rows a rank read in this pass."""
    same = {"loader": begun["loader"], "pass": begun["pass"]}
    batches = [f for f in facts.of_each_rank("batch")[rank] if same.items() <= f.items()]
    return sum(f["size"] or 0 for f in batches)


def targets(facts: Facts) -> Iterator[Finding]:
    """A mean over each rank's own number of targets."""
    seen = facts.beside("targets", grad=True, reduction="mean")
    apart = [f for f in seen if not equal([one["counted"] for one in f])]
    ignored = [f for f in apart if any(one["counted"] < one["of"] for one in f)]
    if ignored and len(apart) > len(seen) / 2:
        counts = " and ".join(str(f["counted"]) for f in ignored[0][:2])
        yield Finding(
            "mean-of-unequal-batches",
            LIKELY,
            f"In {in_counts(len(apart), len(seen), 'batches')} the ranks take the mean over "
            f"numbers of targets of their own ({counts}).",
            "DDP's mean of their means weighs targets unequally: sum the loss, and divide by the "
            "count of all ranks.",
            lines_of(ignored[0][0]),
            "06_further_a_real_run",
        )


def draws(facts: Facts) -> Iterator[Finding]:
    """The same random numbers on all ranks, or in all workers."""
    dropped = facts.beside("drew")
    same = [f for f in dropped if equal([one["state"] for one in f])]
    if len(dropped) > 1 and len(same) >= MIN_EQUAL_SHARE * len(dropped):
        yield Finding(
            "equal-dropout",
            LIKELY,
            f"In {in_counts(len(same), len(dropped), 'forward passes')} all ranks drew the same "
            "random numbers in the model.",
            "All drop the same units: seed each rank by its own number after the model is made.",
            lines_of(same[0][0]),
            SAMPLERS,
        )
    loaded = facts.passes(trained=True)
    made = lines_of(loaded[0][0], key="made") + lines_of(loaded[0][0]) if loaded else ()
    yield from augmentation(facts, made)
    yield from of_workers(facts, made)


def augmentation(facts: Facts, made: tuple[str, ...]) -> Iterator[Finding]:
    """Rows that are changed by the same random numbers on all ranks."""
    drawn = facts.beside("drawn", worker=None)
    for name in drawn[0][0]["states"] if drawn else ():
        values = [[f["states"].get(name) for f in one] for one in drawn]
        if len(values) > 1 and all(equal(one) and one[0] is not None for one in values):
            yield Finding(
                "equal-augmentation",
                LIKELY,
                f"All ranks drew the same random numbers ({name}) while they read their rows.",
                "Augmentation repeats itself between the ranks: seed each by its own number.",
                lines_of(drawn[0][0], key="at") + made,
                SAMPLERS,
            )
            return


def of_workers(facts: Facts, made: tuple[str, ...]) -> Iterator[Finding]:
    """Workers of loaders that draw the same random numbers."""
    firsts: list[dict[int, dict]] = []
    for drawn in facts.of_each_rank("drawn"):
        first: dict[int, dict] = {}
        for fact in drawn:
            if "worker" in fact:
                first.setdefault(fact["worker"], fact)
        firsts.append(first)
    if not all(firsts):
        return
    some = next(iter(firsts[0].values()))
    for name in some["states"]:
        in_rank = [[f["states"].get(name) for f in first.values()] for first in firsts]
        across = [first[0]["states"].get(name) for first in firsts if 0 in first]
        inside = all(len(states) > 1 and equal(states) for states in in_rank)
        if inside or (len(across) == facts.ranks and equal(across)):
            who = "All workers of a loader" if inside else "The workers of all ranks"
            yield Finding(
                "equal-worker-seeds" if inside or name != "torch" else "equal-augmentation",
                LIKELY,
                f"{who} drew the same random numbers ({name}).",
                "Augmentation repeats itself: seed from torch.initial_seed() in each worker, with "
                "another base seed on each rank.",
                lines_of(some, key="at") + made,
                SAMPLERS,
            )
            return
