"""What steps tell without the values of gradients, which ranks of a sharded model do not share."""

from collections.abc import Iterator

from manyranks.script_doctor.facts import (
    LIKELY,
    NOTE,
    WRONG,
    Facts,
    Finding,
    equal,
    lines_of,
    number_in_words,
    share_in_words,
)

DDP_PAGE, SHARDED_PAGE = "02_distributed_data_parallel", "06_fully_sharded"
COLLECTIVES_PAGE = "05_collectives"
MIN_DECISIONS = 2  # of each kind


def trained_by_all(facts: Facts) -> Iterator[tuple[int, list[list[dict]]]]:
    """For each optimizer whose model all ranks share: the steps of each rank."""
    for number in facts.optimizers:
        of_ranks = [
            [f for f in of if f["optimizer"] == number] for of in facts.of_each_rank("step")
        ]
        if not all(of_ranks):
            continue
        firsts = [steps[0] for steps in of_ranks]
        wrapped = [f for f in facts.of_any_rank("ddp") if f["ddp"] in firsts[0]["ddp"]]
        is_shared = any(len(f["ranks"]) == facts.ranks for f in wrapped)
        is_spread = all(f["spread"] for f in firsts)
        if equal([len(f["names"]) for f in firsts]) and (is_shared or is_spread):
            yield number, of_ranks


def steps(facts: Facts) -> Iterator[Finding]:
    """A step that some ranks make after a backward pass, and others do not."""
    if facts.of_any_rank("join"):
        return
    for number, of_ranks in trained_by_all(facts):
        backwards = [
            backwards_before_steps(facts.of_ranks[rank], number) for rank in range(facts.ranks)
        ]
        for counts in zip(*backwards, strict=False):
            if equal(list(counts)):
                continue
            early = min(counts)
            stepped, others = (
                counts.index(early),
                next(r for r, c in enumerate(counts) if c != early),
            )
            yield Finding(
                "step-on-some-ranks",
                WRONG,
                f"Rank {stepped} calls optimizer.step() after backward pass {early}, and rank "
                f"{others} not before pass {counts[others]} (counting those that are "
                "synchronised).",
                "All ranks share this model and must step alike: decide it by a value that is the "
                "same on all, such as one that was reduced.",
                lines_of(of_ranks[stepped][0]),
                DDP_PAGE,
            )
            return


def backwards_before_steps(facts_of_rank: list[dict], optimizer: int) -> list[int]:
    """How many backward passes a rank had made before each step of this optimizer.

    Those under no_sync do not count: a rank may have more micro-batches than another.
    """
    counts, backwards = [], 0
    for fact in facts_of_rank:
        if fact["kind"] == "backward":
            backwards += not fact["sync"] or any(fact["sync"].values())
        if fact["kind"] == "step" and fact["optimizer"] == optimizer:
            counts.append(backwards)
    return counts


def decisions_of_one_rank(facts: Facts) -> Iterator[Finding]:
    """Steps that a broadcast number decides, of which the other ranks had values of their own."""
    if len(facts.optimizers) != 1:
        return
    calls = [
        [f for f in of if f["op"] == "broadcast" and f["by"] == "hand" and f["value"] is not None]
        for of in facts.of_each_rank("comm")
    ]
    by_line: dict[tuple, list[tuple[dict, ...]]] = {}
    for now in zip(*calls, strict=False):
        if equal([(f["lines"][:1], f["root"]) for f in now]):
            by_line.setdefault(tuple(now[0]["lines"][:1]), []).append(now)
    for of_line in by_line.values():
        root = of_line[0][0]["root"]
        others = [rank for rank in range(facts.ranks) if rank != root]
        replaced = [now for now in of_line if not equal([fact["value"] for fact in now])]
        # Ranks that hand in a zero to be filled have nothing of their own to say.
        have_own = any(len({now[rank]["value"] for now in of_line}) > 1 for rank in others)
        numbers: dict[bool | None, list[float]] = {True: [], False: []}
        for now in of_line:
            numbers.setdefault(steps_after(facts, now[0]), []).append(now[root]["value"])
        if not replaced or not have_own or not is_decided_by(numbers[True], numbers[False]):
            continue
        other = next(
            rank for rank in others if replaced[0][rank]["value"] != replaced[0][root]["value"]
        )
        yield Finding(
            "one-rank-decides",
            LIKELY,
            f"This broadcast decides whether the ranks step ({len(numbers[False])} of "
            f"{len(of_line)} times they did not), by a number of rank {root}; in "
            f"{share_in_words(len(replaced), len(of_line), 'calls')} another rank had another one, "
            f"first {replaced[0][other]['value']:.3g} instead of {replaced[0][root]['value']:.3g}.",
            "If each rank computes it from its own rows, one rank's rows decide for all: reduce it "
            "over the ranks instead, as by all_reduce with MAX or AVG.",
            lines_of(replaced[0][root]),
            DDP_PAGE,
        )
        return


def steps_after(facts: Facts, call: dict) -> bool | None:
    """Whether rank 0 steps after a call, before its next backward pass or the end of the pass.

    None if nothing of these comes.
    """
    for fact in facts.between(0, call, None):
        if fact["kind"] in ("step", "backward", "ended"):
            return fact["kind"] == "step"
    return None


def is_decided_by(with_step: list[float], without: list[float]) -> bool:
    """Whether a limit separates the numbers with a step from those without, and not by chance."""
    if min(len(with_step), len(without)) < MIN_DECISIONS:
        return False
    return max(with_step) < min(without) or max(without) < min(with_step)


def other_parameters(facts: Facts) -> Iterator[Finding]:
    """Shards of one parameter that got a gradient on some ranks alone."""
    for _, of_ranks in trained_by_all(facts):
        for step in zip(*of_ranks, strict=False):
            places = [set(f["spread"]) for f in step]
            if not all(places) or equal(places):
                continue
            first, other = places[0], next(p for p in places if p != places[0])
            rank = places.index(other)
            yield Finding(
                "gradients-on-some-ranks",
                WRONG,
                f"Rank 0 has gradients for the sharded parameters {parameters_in_words(first)} of "
                f"the optimizer, rank {rank} for {parameters_in_words(other)}.",
                "A shard's gradient is summed over the ranks that call the same unit at the same "
                "time: all ranks must compute with the same units in the same order.",
                lines_of(*facts.of_one_rank("backward")[:1], step[0]),
                SHARDED_PAGE,
            )
            return


def parameters_in_words(places: set[int]) -> str:
    """`1, 2, 3 …`, counted from 1."""
    numbers = [str(place + 1) for place in sorted(places)]
    return ", ".join(numbers[:4]) + (" …" if len(numbers) > 4 else "")


def cut_graphs(facts: Facts) -> Iterator[Finding]:
    """Parameters whose way to the loss is a collective that keeps no graph."""
    cuts = facts.of_one_rank("cut")
    severed = [f for f in cuts if f["severed"]]
    if severed:
        names = [name.removeprefix("module.") for name in severed[0]["severed"] if name]
        such = f", such as {names[0]}," if names else ""
        number = number_in_words(len(severed[0]["severed"]), "parameter")
        yield Finding(
            "graph-cut",
            WRONG,
            f"{number}{such} led only into {severed[0]['op']}, which has no backward pass, and got "
            "no gradient.",
            "To the loss, what it returns is a constant: use a call that has one, as in "
            "torch.distributed.nn.functional, or put the rank's own piece back into the result "
            "(pieces[rank] = own), which gives its own gradient.",
            lines_of(severed[0]),
            COLLECTIVES_PAGE,
        )
        return
    gathered = [f for f in cuts if f["joined"] and f["size"] > 1 and "all_gather" in f["op"]]
    if len(gathered) > 1:
        yield Finding(
            "gathered-without-gradient",
            NOTE,
            f"Tensors that need a gradient went into {gathered[0]['op']}, which has no backward "
            f"pass, in {number_in_words(len(gathered), 'call')}.",
            "If the loss uses what came back, the other ranks' rows are constants there, as is "
            "common in contrastive losses.",
            lines_of(gathered[0]),
            COLLECTIVES_PAGE,
        )


def nothing_sent(facts: Facts) -> Iterator[Finding]:
    """A sharded model that all ranks train, without any call among them."""
    shares = any("," in f["group"] or f["group"] == "default" for f in facts.of_any_rank("comm"))
    steps = facts.on_all_ranks("step")
    if steps and not shares and all(f["sharded"] for f in steps[0]):
        yield Finding(
            "not-synchronised",
            LIKELY,
            f"The {facts.ranks} ranks trained a sharded model and sent each other nothing: the "
            "mesh that it was sharded over has one rank.",
            "Each rank trains a model of its own: fully_shard must get the dimension of the mesh "
            "that the ranks lie on, or both for HSDP.",
            lines_of(steps[0][0], key="made") + lines_of(steps[0][0]),
            SHARDED_PAGE,
        )
