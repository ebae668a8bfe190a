"""What all ranks must do alike: batches, new groups, collectives; and where they first differ."""

import ast
import re
from collections.abc import Iterator

from manyranks.script_doctor.facts import (
    LIKELY,
    NOTE,
    WRONG,
    Facts,
    Finding,
    equal,
    lines_of,
    ranks_in_words,
    times_in_words,
)

HANGS_PAGE, SAMPLERS_PAGE = "09_when_it_hangs", "04_samplers"
GROUPS_PAGE, CHECKPOINTS_PAGE = "03_process_groups", "08_checkpoint_and_recover"
CONNECTION_ERRORS = re.compile(r"(?i)gloo|connection|socket|timed out|broken pipe|peer")
PAIRWISE = ("send", "recv")
# Ranks may pass other sizes: their shares, or what the root alone hands in.
UNEQUAL_SIZES = ("scatter", "all_to_all", "all_to_all_single", "monitored_barrier", "barrier")


def calls_of_group(facts: Facts, group: str = "default") -> list[list[dict]]:
    """Each rank's calls in a group, without those between two ranks."""
    return [
        [f for f in comms if f["group"] == group and f["op"] not in PAIRWISE]
        for comms in facts.of_each_rank("comm")
    ]


def first_mismatch(calls: list[list[dict]]) -> int | None:
    """The place of the first call that is not the same on all ranks; None if there is none."""
    for place in range(max(map(len, calls))):
        now = [of[place] if place < len(of) else None for of in calls]
        if len({call and signature(call) for call in now}) > 1:
            return place
    return None


def signature(call: dict) -> tuple:
    """What of a call must be the same on all ranks."""
    if call["op"] in UNEQUAL_SIZES:
        return (call["op"],)
    return call["op"], call["bytes"], call["dtype"]


def calls_are_unmatched(facts: Facts) -> bool:
    """True if the script failed or hung without an error of its own: for want of calls."""
    errors = facts.of_any_rank("error")
    own = [f for f in errors if not CONNECTION_ERRORS.search(f["text"])]
    ended = facts.killed or facts.of_any_rank("enough")
    return not own and not ended and bool(errors or facts.hung)


def collectives(facts: Facts) -> Iterator[Finding]:
    """The first collective call that is not the same on all ranks, in a script that failed."""
    calls = calls_of_group(facts)
    place = first_mismatch(calls) if calls_are_unmatched(facts) else None
    if place is None:
        return
    now = {rank: of[place] for rank, of in enumerate(calls) if place < len(of)}
    first_lines = {tuple(f["lines"][:1]) for f in now.values()}
    ops = {f["op"] for f in now.values()}
    if len(now) == facts.ranks and len(first_lines) == len(ops) == 1:
        yield other_shapes(now, place)
        return

    def others_without_line(rank: int) -> int:
        """How many others have not called anything from the line where this rank calls."""
        line = first_line(now[rank])
        return sum(not times(calls, o, place, line) for o in range(facts.ranks))

    rank = max(now, key=lambda rank: (others_without_line(rank), -rank))
    fact, others = now.pop(rank), now
    meanwhile = (
        f"{ranks_in_words([o for o in range(facts.ranks) if o != rank])} made no further call"
    )
    if others:
        other, call = next(iter(others.items()))
        meanwhile = f"rank {other} calls {call['op']}, {first_line(call)}"
    where = "in the forward pass, " if fact["by"] == "forward" else ""
    yield Finding(
        "rank-alone-in-a-collective",
        WRONG,
        f"Rank {rank} calls {fact['op']} {where}its call number {place + 1}, while {meanwhile}.",
        advice(facts, calls, place, rank),
        lines_of(fact, *list(others.values())[:1]),
        HANGS_PAGE,
    )


def first_line(call: dict) -> str:
    """The reader's line that made this call."""
    return (call["lines"] or ["?"])[0]


def times(calls: list[list[dict]], rank: int, place: int, line: str) -> int:
    """How often a rank has made a call from this line, up to this place and with it."""
    return sum(first_line(f) == line for f in calls[rank][: place + 1])


def advice(facts: Facts, calls: list[list[dict]], place: int, rank: int) -> str:
    """What a rank that is alone in its call needs: it differs with what the others do meanwhile."""
    line = first_line(calls[rank][place])
    others = [o for o in range(facts.ranks) if o != rank]
    absent = [o for o in others if place >= len(calls[o])]
    is_running = not any(facts.of_each_rank("finished")[o] for o in absent)
    if absent == others and is_running and is_late(facts):
        return (
            f"{ranks_in_words(absent).capitalize()} had not ended when the group's timeout ended "
            "the wait: if the call comes later there, raise the timeout of init_process_group, and "
            "if it never comes, move it to where all ranks pass."
        )
    meaning = "All ranks of a group must make the same calls in the same order: "
    own = times(calls, rank, place, line)
    fewer = min(others, key=lambda o: times(calls, o, place, line))
    least = times(calls, fewer, place, line)
    if 0 < least < own:
        return meaning + (
            f"from this line rank {rank} called {times_in_words(own)} and rank {fewer} "
            f"{times_in_words(least)}, so the ranks must agree how often it runs."
        )
    for other in [o for o in others if o not in absent]:
        its_line = first_line(calls[other][place])
        if its_line == line:
            return meaning + "here they make two different ones in one line."
        if 0 < times(calls, rank, place, its_line) < times(calls, other, place, its_line):
            return meaning + (
                "either this one is in a branch that only some ranks take, or what is around "
                f"{its_line} runs more often on rank {other}."
            )
    return meaning + "move this one out of the branch that only some ranks take."


def is_late(facts: Facts) -> bool:
    """True if the timeout of a group ended the wait of a rank."""
    return any("timed out" in fact["text"].lower() for fact in facts.of_any_rank("error"))


def other_shapes(now: dict[int, dict], place: int) -> Finding:
    """The same call of all ranks, with tensors that do not fit together."""
    (one, first), *others = now.items()
    other = next((rank, f) for rank, f in others if signature(f) != signature(first))
    tensors = [f"{f['dtype']} {shape_in_words(f['shape'])}" for f in (first, other[1])]
    return Finding(
        "shapes-differ",
        WRONG,
        f"All ranks call {first['op']} in this line, their call number {place + 1}, rank {one} "
        f"with {tensors[0]}, rank {other[0]} with {tensors[1]}.",
        "The tensors of one call must have one shape and type on all ranks: pad them to the "
        "largest, and send the true sizes along.",
        lines_of(first),
        HANGS_PAGE,
    )


def shape_in_words(shape: list | None) -> str:
    """`[4, 2]`, or the first of several shapes."""
    if shape and isinstance(shape[0], list):
        return f"{shape[0]} and {len(shape) - 1} more"
    return str(shape)


# Batches


def batches(facts: Facts) -> Iterator[Finding]:
    """Loaders that give one rank more batches than another, each of which ends in calls."""
    if facts.of_any_rank("join"):
        return
    for of_ranks in facts.passes_on_all_ranks():
        counts = [BatchCount(facts, rank, fact) for rank, fact in enumerate(of_ranks)]
        ended = [(count.number, rank) for rank, count in enumerate(counts) if count.is_known]
        if not ended:
            continue
        least, short = min(ended)
        most, long = max((count.number, rank) for rank, count in enumerate(counts))
        if most == least or not counts[long].calls_after(least):
            continue
        unmatched = calls_are_unmatched(facts) and first_mismatch(calls_of_group(facts)) is not None
        by_loader = facts.of_any_rank("enough") and ends_with_its_loader(facts.source, of_ranks[0])
        more = "" if counts[long].is_known else "at least "
        yield Finding(
            "unequal-batches",
            WRONG if unmatched else LIKELY if by_loader else NOTE,
            f"Rank {long}'s loader gave {more}{most} batches in pass {of_ranks[long]['pass']}, "
            f"rank {short}'s {least}.",
            "Each batch makes calls that all ranks must make, and the rank with more batches waits "
            "for the others: give all as many (a DistributedSampler pads, or cut the shares to the "
            "shortest), or use DDP's join()."
            if unmatched or by_loader
            else "Nothing waited in vain in what was seen; the ranks must agree when to stop.",
            lines_of(of_ranks[long], key="made") + lines_of(of_ranks[long]),
            SAMPLERS_PAGE,
        )
        return


class BatchCount:
    """How many batches a rank had in a pass; `is_known` if the pass came to its own end."""

    def __init__(self, facts: Facts, rank: int, pass_fact: dict):
        self.key = {"loader": pass_fact["loader"], "pass": pass_fact["pass"]}
        self.facts = facts.of_ranks[rank]
        given = [f for f in facts.of_each_rank("batch")[rank] if self.key.items() <= f.items()]
        ends = [f for f in facts.of_each_rank("ended")[rank] if self.key.items() <= f.items()]
        whole, came_to_end = pass_fact.get("batches"), bool(ends) and not ends[0]["cut"]
        # A pass may be left early, by all ranks alike: what the loader holds is no count then.
        is_cut = bool(ends) and ends[0]["cut"] and whole is not None
        self.number: int = whole if is_cut and whole else len(given)
        self.is_known = came_to_end or is_cut

    def calls_after(self, least: int) -> bool:
        """Whether this rank made calls with the batch that another did not have, or with the last
        one that was seen."""
        seen, calls, inside = 0, False, False
        for fact in self.facts:
            if fact["kind"] == "batch" and self.key.items() <= fact.items():
                seen, inside = seen + 1, True
                if seen <= least + 1:
                    calls = False
            elif fact["kind"] == "ended" and self.key.items() <= fact.items():
                inside = False
            elif inside and fact["kind"] == "comm" and fact["op"] not in PAIRWISE:
                calls = True
        return calls


def ends_with_its_loader(source: str, pass_fact: dict) -> bool:
    """True if only the loader's end ends the loop over it, and no loop around is a `while`.

    A loop that is left by `break`, or that begins its loader again, may stop by other numbers.
    """
    numbers = [int(line.rpartition(":")[2]) for line in pass_fact["lines"]]
    loops = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.For | ast.While)]
    around = [
        loop
        for loop in loops
        if any(loop.lineno <= number <= (loop.end_lineno or 0) for number in numbers)
    ]
    begins = any(loop.lineno in numbers[:1] for loop in around if isinstance(loop, ast.For))
    leaves = any(
        isinstance(node, ast.Break | ast.Return)
        for loop in around
        for part in loop.body
        for node in ast.walk(part)
    )
    return begins and not leaves and not any(isinstance(loop, ast.While) for loop in around)


# Groups


def groups(facts: Facts) -> Iterator[Finding]:
    """Calls of new_group that are not the same on all ranks."""
    calls = [[f for f in of if not f["by_members"]] for of in facts.of_each_rank("group")]
    if facts.of_any_rank("enough"):  # a rank may have been ended before it came to a later one
        calls = [of[: min(map(len, calls))] for of in calls]
    for place in range(max(map(len, calls))):
        now = {rank: of[place] for rank, of in enumerate(calls) if place < len(of)}
        by_members: dict[tuple | None, list[int]] = {}
        for rank, fact in now.items():
            members = None if fact["members"] is None else tuple(fact["members"])
            by_members.setdefault(members, []).append(rank)
        absent = [rank for rank in range(facts.ranks) if rank not in now]
        if len(by_members) == 1 and not absent:
            continue
        if any(facts.of_each_rank("error")[rank] for rank in absent):
            return  # it may have ended before it came there
        parts = [
            f"{ranks_in_words(ranks)} for {'all ranks' if m is None else list(m)}"
            for m, ranks in by_members.items()
        ]
        first = next(iter(now.values()))
        yield Finding(
            "new-group-differs",
            WRONG,
            f"Call number {place + 1} of new_group was made by {', by '.join(parts)}"
            + (f", and not by {ranks_in_words(absent)}." if absent else "."),
            "All ranks of the world must make the same calls of new_group in the same order, also "
            "those that are not members: otherwise groups are mixed up, or it hangs. Call it on "
            "all, or with use_local_synchronization=True on the members alone.",
            lines_of(first),
            GROUPS_PAGE,
        )
        return


# Files


def removed_files(facts: Facts) -> Iterator[Finding]:
    """A file that one rank removed before another had read it."""
    for rank, errors in enumerate(facts.of_each_rank("error")):
        for error in errors:
            name = re.search(r"'([^']+)'", error["text"])
            if error["type"] != "FileNotFoundError" or not name:
                continue
            for other, removals in enumerate(facts.of_each_rank("removed")):
                gone = [f for f in removals if f["path"].endswith("/" + name[1].strip("./"))]
                if other != rank and gone:
                    yield Finding(
                        "removed-by-another-rank",
                        WRONG,
                        f"Rank {rank} found no {name[1].rpartition('/')[2]}, and rank {other} had "
                        "removed it in this run.",
                        "A rank may be later than the others: put a barrier before the removal.",
                        lines_of(gone[0], error),
                        CHECKPOINTS_PAGE,
                    )
                    return


def compared_calls(facts: Facts) -> tuple[int, bool]:
    """How many calls were the same on all ranks of their group, and whether all were.

    A rank that was ended with the script may lack the last ones.
    """
    count, all_same = 0, True
    for group in sorted({f["group"] for f in facts.of_any_rank("comm")}):
        calls = calls_of_group(facts, group)
        if group != "default":
            members = {int(rank) for rank in group.removeprefix("ranks ").split(",")}
            calls = [of for rank, of in enumerate(calls) if rank in members]
        shortest = min(map(len, calls))
        is_short = not equal([len(of) for of in calls]) and not facts.of_any_rank("enough")
        if is_short or first_mismatch([of[:shortest] for of in calls] or [[]]) is not None:
            all_same = False
        count += shortest
    return count, all_same


def names_in_other_order(facts: Facts) -> Iterator[Finding]:
    """Calls in a loop over names, in which ranks come to the names in orders of their own."""
    calls = [
        [f for f in of if f["by"] == "hand" and f.get("names")] for of in facts.of_each_rank("comm")
    ]
    for now in zip(*calls, strict=False):
        lines = now[0]["lines"][:1]
        if any(f["lines"][:1] != lines for f in now):
            return
        for name in now[0]["names"]:
            words = [f["names"].get(name) for f in now]
            in_line = [
                {f["names"].get(name) for f in of if f["lines"][:1] == lines} for of in calls
            ]
            if None in words or equal(words) or any(len(of) < 2 for of in in_line):
                continue
            other = next(word for word in words if word != words[0])
            yield Finding(
                "names-in-other-order",
                LIKELY if set.intersection(*in_line) else NOTE,
                f"The ranks call {now[0]['op']} in this line for one name after the other, and at "
                f"the same call {name} is {words[0]!r} on rank 0 and {other!r} on another.",
                "Calls are matched by their order, so values of different names are combined: go "
                "through the same names on all ranks, sorted.",
                lines_of(now[0]),
                "05_collectives",
            )
            return
