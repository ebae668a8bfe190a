"""Which rank did not come to which collective: the ranks' trails, compared group by group."""

from ddp_workbook.diagnostics.positions import TWO_SIDED, Position
from ddp_workbook.diagnostics.user_code import short

ALL_MUST = "Every rank of the world must call it, also those outside the group, in the same order."
STORE_CALLS = {  # entered through the store, so the flight recorder holds nothing of them
    "new_group": ALL_MUST,
    "init_device_mesh": "It makes groups: every rank of the world must call it.",
    "monitored_barrier": "It waits for every rank of its group.",
    "init_process_group": "It waits until all WORLD_SIZE ranks have called it.",
}
TWO_SIDES = (
    "Each send needs a recv on the other rank. Two ranks that both send first, or both receive "
    "first, can wait for ever."
)
UNEVEN = ("scatter", "gather", "all_to_all", "all_to_all_single")  # shapes may differ by right


def disagreements(
    trails: dict[int, dict], positions: list[Position], *, failed: bool = False
) -> list[str]:
    """Sentences about the first meeting of each group that not all its members came to alike.

    `trails` holds for each rank what `trail.read` gave; `positions` where each rank stands.
    `failed`: a rank lost its peers, so nothing that it entered is still unfinished.
    """
    sentences = _about_making_groups(trails)
    groups = {entry["group"] for trail in trails.values() for entry in trail["entries"]}
    for group in sorted(groups):
        sentences += _about_group(group, trails, failed)
    return (sentences or _about_store_calls(positions)) + _about_two_sides(positions)


def _about_making_groups(trails: dict[int, dict]) -> list[str]:
    """Who has called new_group how often: unlike counts give their groups unlike names."""
    calls = {rank: max(0, trail["made"] - 1) for rank, trail in trails.items() if trail["made"]}
    if len(set(calls.values())) < 2:
        return []
    times = [
        f"{number or 'no'} {'call' if number == 1 else 'calls'} by "
        + _ranks([rank for rank, made in calls.items() if made == number])
        for number in sorted(set(calls.values()), reverse=True)
    ]
    return [f"new_group (init_device_mesh calls it too): {', '.join(times)}. {ALL_MUST}"]


def _about_group(group: str, trails: dict[int, dict], failed: bool) -> list[str]:
    """The group's first meeting that somebody missed, or to which they came with other calls."""
    ranks = _members(group, trails)
    if ranks is None:
        return []
    came: dict[int, dict[int, dict]] = {}
    for rank in set(ranks) & set(trails):
        for entry in trails[rank]["entries"]:
            if entry["group"] == group:
                came.setdefault(entry["seq"], {})[rank] = entry
    for seq in sorted(s for s in came if s >= _remembered_from(group, trails)):
        there = came[seq]
        missing = [rank for rank in ranks if rank not in there]
        meeting = f"Call {seq} of {_name(group, ranks)}"
        if not failed and all(entry["finished"] for entry in there.values()):
            continue
        if len({_kind(entry) for entry in there.values()}) > 1:
            return [
                f"{meeting} differs between the ranks: {_who_came_with(there)}{_absent(missing)}"
            ]
        if missing:
            entry = next(iter(there.values()))
            return [
                f"{meeting}, {_label(entry)}{_where(entry)}: entered by {_ranks(sorted(there))}, "
                f"never by {_ranks(missing)}."
            ]
    return []


def _remembered_from(group: str, trails: dict[int, dict]) -> int:
    """The first call that no rank can have forgotten: a trail keeps the last entries only."""
    firsts = (
        min((e["seq"] for e in trail["entries"] if e["group"] == group), default=1)
        for trail in trails.values()
    )
    return max(firsts, default=1)


def _about_store_calls(positions: list[Position]) -> list[str]:
    """Who stands in a call that others did not enter, where the trails hold nothing of it."""
    sentences = []
    for call in sorted({p.call for p in positions} & set(STORE_CALLS)):
        there = [p.rank for p in positions if p.call == call]
        others = [p.rank for p in positions if p.call != call]
        if others:
            who = f"entered by {_ranks(there)}, never by {_ranks(others)}"
            sentences.append(f"{call}: {who}. {STORE_CALLS[call]}")
    return sentences


def _about_two_sides(positions: list[Position]) -> list[str]:
    return [TWO_SIDES] if any(p.call in TWO_SIDED for p in positions) else []


def _members(group: str, trails: dict[int, dict]) -> list[int] | None:
    """Global ranks of the group; None where its name stands for other ranks on another rank."""
    listed = [t["groups"][group] for t in trails.values() if group in t["groups"]]
    if any(ranks != listed[0] for ranks in listed):
        return None
    if listed:
        return listed[0]
    # Every rank has destroyed it, or none was told.
    used = [r for r, t in trails.items() if any(e["group"] == group for e in t["entries"])]
    return sorted(trails) if group == "0" else used


def _name(group: str, ranks: list[int]) -> str:
    return "the default group" if group == "0" else f"the group of {_ranks(ranks)}"


def _kind(entry: dict) -> str:
    """What must be equal on all ranks."""
    return entry["op"] if entry["op"] in UNEVEN else _label(entry)


def _label(entry: dict) -> str:
    """ "all_reduce of float [4]" """
    tensors = zip(entry["dtypes"], entry["shapes"], strict=False)
    parts = [f"{dtype} {shape}" for dtype, shape in tensors]
    if not parts:
        return entry["op"]
    return f"{entry['op']} of {', '.join(parts[:2])}" + (" …" if len(parts) > 2 else "")


def _where(entry: dict) -> str:
    return f" ({short(entry['file'])}:{entry['line']})" if entry["file"] else ""


def _who_came_with(there: dict[int, dict]) -> str:
    """ "ranks 0 and 2 came with all_reduce (train.py:12); rank 1 came with barrier" """
    by_call: dict[str, list[int]] = {}
    for rank, entry in sorted(there.items()):
        by_call.setdefault(_label(entry) + _where(entry), []).append(rank)
    return "; ".join(f"{_ranks(ranks)} came with {call}" for call, ranks in by_call.items())


def _ranks(ranks: list[int]) -> str:
    """ "rank 1", "ranks 0, 1 and 3", "ranks 0 to 15" """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 3 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    if len(ranks) > 8:
        return f"ranks {', '.join(map(str, ranks[:8]))} and {len(ranks) - 8} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _absent(missing: list[int]) -> str:
    return f"; {_ranks(missing)} never came." if missing else "."
