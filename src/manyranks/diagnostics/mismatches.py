"""Which rank missed which collective: the ranks' flight records, compared by group."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from manyranks.diagnostics.positions import Position
from manyranks.diagnostics.user_code import short

ALL_MUST = (
    "Every rank of the world must call it in the same order, even those outside the group. (With "
    "use_local_synchronization=True only the members do, and each must be in equally many groups.)"
)
STORE_CALLS = {  # they go through the store, so the flight recorder does not see them
    "new_group": ALL_MUST,
    "init_device_mesh": "It makes groups, so every rank of the world must call it.",
    "monitored_barrier": "It waits for every rank of its group.",
    "init_process_group": "It waits until all WORLD_SIZE ranks have called it.",
}
GROUP_CALLS = ("new_group", "init_device_mesh")
UNEVEN_CALLS = ("scatter", "gather", "all_to_all", "all_to_all_single")  # shapes may differ


class Kind(Enum):
    """In which way the ranks' calls do not match."""

    GROUPS = "unequal numbers of new_group"
    OPERATIONS = "different operations, or calls of different lines, at the same place"
    TENSORS = "the same call on different shapes or dtypes"
    MISSING = "some ranks never called"


@dataclass(frozen=True)
class Mismatch:
    """One place at which calls do not match: the kind is for code, the sentence for people.

    `present` holds the ranks that made a call there, `missing` those that made none.
    """

    kind: Kind
    sentence: str
    present: Sequence[int] = ()
    missing: Sequence[int] = ()

    def __str__(self) -> str:
        return self.sentence


def mismatches(
    records: dict[int, dict], positions: list[Position], *, failed: bool = False
) -> list[Mismatch]:
    """For each group, the first call that its members did not all make alike.

    `records` has the result of `flight_recorder.read` for each rank; `positions` says where each
    rank stands. `failed` means that a rank lost its peers, so none of its calls is still running.
    """
    differences = _in_new_groups(records, positions)
    groups = {entry["group"] for record in records.values() for entry in record["entries"]}
    for group in sorted(groups):
        differences += _in_group(group, records, failed)
    return differences or _in_store_calls(positions)


def _in_new_groups(records: dict[int, dict], positions: list[Position]) -> list[Mismatch]:
    """Did the ranks make the same groups? Other numbers of calls give groups other names.

    With equal numbers, only where a rank still waits for a group: on some backends ranks can make
    groups of their own and get away with it.
    """
    calls = {
        rank: max(0, record["group_count"] - 1)
        for rank, record in records.items()
        if record["group_count"]
    }
    first = _first_other_group(calls, records)
    if len(set(calls.values())) > 1:
        times = [
            f"{number or 'no'} {'call' if number == 1 else 'calls'} by "
            + ranks_in_words([rank for rank, count in calls.items() if count == number])
            for number in sorted(set(calls.values()), reverse=True)
        ]
        parts = [f"{', '.join(times)}.", first, ALL_MUST]
    elif first and any(position.call in GROUP_CALLS for position in positions):
        parts = [first, ALL_MUST]
    else:
        return []
    words = " ".join(part for part in parts if part)
    return [Mismatch(Kind.GROUPS, f"new_group (init_device_mesh calls it too): {words}")]


def _first_other_group(calls: dict[int, int], records: dict[int, dict]) -> str:
    """ "Call 1: [0, 1] on ranks 0 and 2, [1, 2] on rank 1." `calls` says how many each made."""
    for number in range(1, max(calls.values(), default=0) + 1):
        by_members: dict[str, list[int]] = {}
        for rank, count in sorted(calls.items()):
            members = records[rank].get("group_calls", {}).get(number)
            if members or number > count:
                by_members.setdefault(_members_in_words(members), []).append(rank)
        if len(by_members) > 1:
            parts = [f"{group} on {ranks_in_words(ranks)}" for group, ranks in by_members.items()]
            return f"Call {number}: {', '.join(parts)}."
    return ""


def _members_in_words(ranks: Sequence[int] | None) -> str:
    """ "[0, 1]", "[0, 1, 2, …, 15]"; None is a call that was not made."""
    if ranks is None:
        return "none"
    numbers = [*map(str, ranks)]
    return f"[{', '.join(numbers if len(ranks) <= 8 else [*numbers[:3], '…', numbers[-1]])}]"


def _in_group(group: str, records: dict[int, dict], failed: bool) -> list[Mismatch]:
    """The group's first call that a rank missed, or that ranks made differently."""
    ranks = _members(group, records)
    if ranks is None:
        return []
    calls: dict[int, dict[int, dict]] = {}  # by seq and rank
    for rank in set(ranks) & set(records):
        for entry in records[rank]["entries"]:
            if entry["group"] == group:
                calls.setdefault(entry["seq"], {})[rank] = entry
    # A record keeps only the last entries: from here on, every rank still has them.
    firsts = (
        min((e["seq"] for e in record["entries"] if e["group"] == group), default=1)
        for record in records.values()
    )
    first_common_seq = max(firsts, default=1)
    for seq in sorted(s for s in calls if s >= first_common_seq):
        there = calls[seq]
        missing = [rank for rank in ranks if rank not in there]
        call = f"Call {seq} of {_name(group, ranks)}"
        if not failed and all(entry["finished"] for entry in there.values()):
            continue
        if len({_kind(entry) for entry in there.values()}) > 1:
            absent = f"; {ranks_in_words(missing)} never called." if missing else "."
            differ = f"{call} differs between the ranks: {_calls_in_words(there)}{absent}"
            lines = {(entry["op"], entry["file"], entry["line"]) for entry in there.values()}
            kind = Kind.TENSORS if len(lines) == 1 else Kind.OPERATIONS
            return [Mismatch(kind, differ, sorted(there), missing)]
        if missing:
            entry = next(iter(there.values()))
            who = f"entered by {ranks_in_words(sorted(there))}, never by {ranks_in_words(missing)}."
            sentence = f"{call}, {_label(entry)}{_where(entry)}: {who}"
            return [Mismatch(Kind.MISSING, sentence, sorted(there), missing)]
    return []


def _in_store_calls(positions: list[Position]) -> list[Mismatch]:
    """Ranks that stand in a call of STORE_CALLS which others did not make."""
    differences = []
    for call in sorted({p.call for p in positions} & set(STORE_CALLS)):
        there = [p.rank for p in positions if p.call == call]
        others = [p.rank for p in positions if p.call != call]
        if others:
            who = f"entered by {ranks_in_words(there)}, never by {ranks_in_words(others)}"
            sentence = f"{call}: {who}. {STORE_CALLS[call]}"
            differences.append(Mismatch(Kind.MISSING, sentence, there, others))
    return differences


def present_ranks(differences: Sequence[Mismatch]) -> set[int]:
    """The ranks that made a call at each place at which they should have."""
    there = {rank for mismatch in differences for rank in mismatch.present}
    return there - {rank for mismatch in differences for rank in mismatch.missing}


def _members(group: str, records: dict[int, dict]) -> list[int] | None:
    """Global ranks of the group; None if its name means different ranks on different ranks."""
    memberships = [t["groups"][group] for t in records.values() if group in t["groups"]]
    if any(ranks != memberships[0] for ranks in memberships):
        return None
    if memberships:
        return memberships[0]
    # Every rank has destroyed it, or none knew it.
    callers = [r for r, t in records.items() if any(e["group"] == group for e in t["entries"])]
    return sorted(records) if group == "0" else callers


def _name(group: str, ranks: list[int]) -> str:
    return "the default group" if group == "0" else f"the group of {ranks_in_words(ranks)}"


def _kind(entry: dict) -> str:
    """What must be equal on all ranks."""
    return entry["op"] if entry["op"] in UNEVEN_CALLS else _label(entry)


def _label(entry: dict) -> str:
    """ "all_reduce of float [4]" """
    tensors = zip(entry["dtypes"], entry["shapes"], strict=False)
    parts = [f"{dtype} {shape}" for dtype, shape in tensors]
    if not parts:
        return entry["op"]
    return f"{entry['op']} of {', '.join(parts[:2])}" + (" …" if len(parts) > 2 else "")


def _where(entry: dict) -> str:
    return f" ({short(entry['file'])}:{entry['line']})" if entry["file"] else ""


def _calls_in_words(there: dict[int, dict]) -> str:
    """ "ranks 0 and 2 called all_reduce (train.py:12); rank 1 called barrier" """
    by_call: dict[str, list[int]] = {}
    for rank, entry in sorted(there.items()):
        by_call.setdefault(_label(entry) + _where(entry), []).append(rank)
    return "; ".join(f"{ranks_in_words(ranks)} called {call}" for call, ranks in by_call.items())


def ranks_in_words(ranks: list[int]) -> str:
    """ "rank 1", "ranks 0, 1 and 3", "ranks 0 to 15" """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 3 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    if len(ranks) > 8:
        return f"ranks {', '.join(map(str, ranks[:8]))} and {len(ranks) - 8} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
