"""Which collectives a rank has entered, in which group, from which line.

This comes from PyTorch's flight recorder, which another thread can read while the rank hangs. Seen
on torch 2.13: with gloo it has no send and recv, and `state` stays "scheduled", so `retired` tells
what has finished.
"""

import pickle
import sys
from types import FrameType

import torch.distributed as dist

from manyranks.diagnostics.evidence import Frame
from manyranks.diagnostics.user_code import is_own

MAX_ENTRIES = 40  # entries kept for each group: a mismatch is at the end
MAX_FRAMES = 500  # frames
MODULE = "distributed_c10d.py"
NEW_GROUP = "_new_group_with_tag"  # in MODULE; new_group and init_device_mesh call it (torch 2.13)


def read() -> dict:
    """What this process has entered, as plain data; empty if nothing was recorded.

    `entries` has what `brief` keeps of each collective, `groups` the global ranks by the group's
    internal name, `group_count` the number of groups that this rank has asked for, including the
    world, and `group_calls` the global ranks of its calls of new_group, by the call's number, as
    far as they are known.
    """
    record: dict = {"entries": [], "groups": {}, "group_count": 0, "group_calls": {}}
    c10d = sys.modules.get("torch._C._distributed_c10d")
    if c10d is None or not dist.is_available():
        return record
    try:
        record |= {"groups": members(), "group_count": dist.distributed_c10d.get_pg_count()}
        entries = pickle.loads(c10d._dump_fr_trace())["entries"]
        record["group_calls"] = group_calls(record["groups"], record["group_count"])
    except Exception:  # private functions: without them, the stacks still tell
        return record
    by_group: dict[str, list] = {}
    for entry in entries:
        if not entry.get("is_p2p"):
            by_group.setdefault(entry["process_group"][0], []).append(entry)
    return record | {
        "entries": [brief(e) for group in by_group.values() for e in group[-MAX_ENTRIES:]]
    }


def stack(frame: FrameType | None) -> list[Frame]:
    """File, line and function of each frame, innermost first."""
    frames: list[Frame] = []
    while frame is not None and len(frames) < MAX_FRAMES:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return frames


def brief(entry: dict) -> dict:
    """The part of a flight recorder entry that a report needs."""
    frames = entry.get("frames") or []
    frame = next((f for f in frames if is_own(f["filename"])), None)
    # gloo makes a reduce_scatter of an all_reduce, and records that one (torch 2.13)
    names = [f["name"] for f in frames if f["filename"].endswith(MODULE)]
    scatter_names = (name for name in reversed(names) if name.startswith("reduce_scatter"))
    return {
        "group": entry["process_group"][0],
        "seq": entry["collective_seq_id"],
        "op": next(scatter_names, entry["profiling_name"].split(":")[-1]),
        "shapes": entry["input_sizes"],
        "dtypes": [name.lower() for name in entry.get("input_dtypes") or []],
        "finished": bool(entry.get("retired")),
        "file": frame["filename"] if frame else "",
        "line": frame["line"] if frame else 0,
    }


def members() -> dict[str, list[int]]:
    """Global ranks of each live group, by the group's internal name ("0" is the world)."""
    world = dist.distributed_c10d._world
    names, ranks = dict(world.pg_names), dict(world.pg_group_ranks)
    return {names[group]: sorted(ranks[group]) for group in ranks if group in names}


def group_calls(groups: dict[str, list[int]], count: int) -> dict[int, list[int]]:
    """Global ranks of each call of new_group that can be told, by its number: the first is 1.

    PyTorch names a group by the number of the call (torch 2.13), but a rank outside the group keeps
    no name, and a call that has not returned none either: the ranks of that one are in its frame.
    """
    calls = {int(name): ranks for name, ranks in groups.items() if name.isdecimal() and name != "0"}
    for frame in sys._current_frames().values():
        calls |= pending_group(frame)
    unknown = set(range(1, count)) - set(calls)
    outside = dist.distributed_c10d._world.pg_group_ranks.get(dist.GroupMember.NON_GROUP_MEMBER)
    if outside and len(unknown) == 1:  # PyTorch keeps only the last group that this rank is not in
        calls[unknown.pop()] = sorted(outside)
    return calls


def pending_group(frame: FrameType | None) -> dict[int, list[int]]:
    """The number and the ranks of the new_group that this thread is in; empty if it is in none."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == NEW_GROUP and code.co_filename.endswith(MODULE):
            name, ranks = str(frame.f_locals.get("group_name")), frame.f_locals.get("ranks")
            return {int(name): sorted(ranks)} if ranks and name.isdecimal() else {}
        frame = frame.f_back
    return {}


def progress(record: dict | None) -> tuple:
    """A value that changes whenever a rank enters or finishes a collective, or makes a group."""
    if not record:
        return ()
    entries = [(e["group"], e["seq"], e["finished"]) for e in record["entries"]]
    return (record["group_count"], *entries)
