"""Which rank did not come to which collective: the ranks' trails, compared group by group."""

from ddp_workbook.workbench.positions import Position
from ddp_workbook.workbench.sources import short

STORE_CALLS = {  # entered through the store, so the flight recorder holds nothing of them
    "new_group": "new_group must be called by every rank of the world, also by those outside the group, "
    "and in the same order.",
    "monitored_barrier": "monitored_barrier waits for every rank of its group.",
    "init_process_group": "init_process_group waits until all WORLD_SIZE ranks have called it.",
    "init_device_mesh": "init_device_mesh makes groups: every rank of the world must call it.",
}


def disagreements(trails: dict[int, dict], positions: list[Position]) -> list[str]:
    """Sentences about the first meeting of each group that not all its members came to in the same way.

    `trails` holds for each rank what `trail.read` gave; `positions` where each rank stands.
    """
    sentences = []
    groups = {entry["group"] for trail in trails.values() for entry in trail["entries"]}
    for group in sorted(groups):
        sentences += _about_group(group, trails)
    return sentences or _about_calls(positions)


def _about_group(group: str, trails: dict[int, dict]) -> list[str]:
    """The group's first meeting that somebody missed, or to which the members came with different calls."""
    came: dict[int, dict[int, dict]] = {}
    for rank, trail in trails.items():
        for entry in trail["entries"]:
            if entry["group"] == group:
                came.setdefault(entry["seq"], {})[rank] = entry
    ranks = _members(group, trails)
    start = max(
        (
            min((e["seq"] for e in t["entries"] if e["group"] == group), default=1)
            for t in trails.values()
        ),
        default=1,
    )  # before this, a long trail has forgotten some entries
    for seq in sorted(s for s in came if s >= start):
        there = came[seq]
        missing = [rank for rank in ranks if rank not in there]
        kinds = {_label(entry) for entry in there.values()}
        if len(kinds) > 1:
            return [
                f"Call {seq} of {_name(group, ranks)} differs between the ranks: "
                + "; ".join(
                    f"rank {r} came with {_label(e)}{_where(e)}" for r, e in sorted(there.items())
                )
                + _absent(missing)
            ]
        if missing and any(not entry["finished"] for entry in there.values()):
            entry = next(iter(there.values()))
            return [
                f"Call {seq} of {_name(group, ranks)}, {_label(entry)}{_where(entry)}: entered by "
                f"{_ranks(sorted(there))}, never by {_ranks(missing)}."
            ]
    return []


def _about_calls(positions: list[Position]) -> list[str]:
    """Without a disagreement in the trails: who stands in a call that others did not enter (send, recv, new_group)."""
    sentences = []
    for call in sorted({p.call for p in positions if p.call}):
        there = [p.rank for p in positions if p.call == call]
        others = [p.rank for p in positions if p.call != call]
        rule = STORE_CALLS.get(call)
        if rule and others:
            sentences.append(
                f"{call}: entered by {_ranks(there)}, never by {_ranks(others)}. {rule}"
            )
        elif call in ("send", "recv", "isend", "irecv", "wait", "batch_isend_irecv"):
            sentences.append(
                f"{_ranks(there).capitalize()} in {call}: each send needs its recv on the other rank, "
                "and two ranks that both wait for the other's first move wait for ever."
            )
    return sentences


def _members(group: str, trails: dict[int, dict]) -> list[int]:
    listed = next(
        (trail["groups"][group] for trail in trails.values() if group in trail["groups"]), None
    )
    if listed is None:  # every rank has destroyed it, or none was told
        listed = [
            r
            for r, t in trails.items()
            if group == "0" or any(e["group"] == group for e in t["entries"])
        ]
    return listed


def _name(group: str, ranks: list[int]) -> str:
    return "the default group" if group == "0" else f"the group of {_ranks(ranks)}"


def _label(entry: dict) -> str:
    """ "all_reduce of float [4]" """
    parts = [
        f"{dtype} {shape}" for dtype, shape in zip(entry["dtypes"], entry["shapes"], strict=False)
    ]
    if not parts:
        return entry["op"]
    return f"{entry['op']} of {', '.join(parts[:2])}" + (" …" if len(parts) > 2 else "")


def _where(entry: dict) -> str:
    return f" ({short(entry['file'])}:{entry['line']})" if entry["file"] else ""


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 8:
        return (
            f"ranks {ranks[0]} to {ranks[-1]}"
            if ranks == list(range(ranks[0], ranks[-1] + 1))
            else (f"ranks {', '.join(map(str, ranks[:8]))} and {len(ranks) - 8} more")
        )
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _absent(missing: list[int]) -> str:
    return f"; {_ranks(missing)} never came." if missing else "."
