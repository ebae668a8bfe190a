"""Add up a tensor over all ranks, so that little of it travels between the nodes.

Inside a node sending is fast, between the nodes it is slow. The first rank of each node is its
leader. Your function is called on all ranks, with a tensor of the same shape and dtype, and with
two groups that have been made before:

- `inside` has the ranks of the own node; the leader is its first rank.
- `between` has the leaders of all nodes. Ranks that are no leaders are not in it, and get None.

When it returns, the tensor itself holds the sum over all ranks, on every rank; what it returns does
not matter. What happens inside the nodes is up to you. Between them:

- Only leaders take part in an operation in which there are ranks of several nodes.
- Each leader takes part in one of these. It hands over the tensor's bytes, and receives as many.

Nodes may have unequal numbers of ranks, or one rank only, and there may be one node only. What has
been started is waited for: the caller may change the tensor at once.
"""

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words

HINTS = [
    "Three steps. What does the leader know after the first one, and which ranks still lack the "
    "sum after the second one?",
    "First only the leader of a node needs the node's sum. A rank can tell from `between` whether "
    "it is a leader.",
    "reduce, all_reduce and broadcast each take a group. group_dst=0 and group_src=0 mean the "
    "first rank of that group; dst and src would be its number in the world.",
]
FOR_ERRORS = {
    "is not part of group": "dst and src are numbers in the world. How can a rank be named by its "
    "number inside the group?",
    "NoneType": "On which ranks is `between` None, and what are they to do with it?",
    "can't be cast": "A sum of integers is an integer. What is divided here?",
}
SIZES = (1, 2, 3, 4, 6)
Nodes = list[list[int]]  # the ranks of each one; the first of them leads it
LAYOUTS: dict[int, list[Nodes]] = {  # at each world size
    1: [[[0]]],
    2: [[[0, 1]], [[0], [1]]],
    3: [[[0], [1, 2]], [[0, 1], [2]]],
    4: [[[0, 1], [2, 3]], [[0], [1, 2, 3]]],
    6: [[[0, 1], [2], [3, 4, 5]]],
}
KINDS = [((5,), torch.float32), ((2, 2), torch.int64)]  # shape and dtype of the first and second
PATIENCE = 2.5  # seconds, with ranks that do not come back
PAUSE = 0.03  # seconds that some ranks come later: what is not waited for, shows


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    ### BEGIN SOLUTION
    dist.reduce(tensor, group_dst=0, group=inside)
    if between is not None:  # this rank leads its node
        dist.all_reduce(tensor, group=between)
    dist.broadcast(tensor, group_src=0, group=inside)
    ### END SOLUTION


def numbers(call: int, factor: int) -> Tensor:
    """What a rank holds in this call; `factor` is 1 on rank 0, 10 on rank 1, 100 on rank 2."""
    shape, dtype = KINDS[call % len(KINDS)]
    return torch.arange(1, math.prod(shape) + 1, dtype=dtype).reshape(shape) * factor


def all_calls(hierarchical_all_reduce: Callable, layouts: list[Nodes]) -> list[dict]:
    """In a rank: what came of each call, until something is wrong on one of the ranks."""
    answers: list[dict[str, Any]] = []
    rank, ranks = dist.get_rank(), dist.get_world_size()
    alone = dist.new_group([rank], use_local_synchronization=True)
    for nodes in layouts:
        leaders = [node[0] for node in nodes]
        inside, _ = dist.new_subgroups_by_enumeration(nodes)
        between = dist.new_group(leaders)
        for late in (leaders[1:][-1:], {*range(ranks)} - {*leaders}):
            tensor, total = (numbers(len(answers), f) for f in (10**rank, int("1" * ranks)))
            memory = tensor.detach()  # what the caller still holds if `tensor` gets other memory
            time.sleep(PAUSE if rank in late else 0)
            returned = hierarchical_all_reduce(tensor, inside, between if rank in leaders else None)
            answers.append({"value": memory.clone()})
            if wrong := not torch.equal(answers[-1]["value"], total):
                time.sleep(4 * PAUSE)
                answers[-1]["late"] = torch.equal(memory, total)
                answers[-1]["elsewhere"] = any(same(one, total) for one in (tensor, returned))
            dist.barrier(alone)  # in the wire this marks the end of a call
            if trouble(f"call {len(answers)}", wrong):
                return answers
    return answers


def same(one: Any, other: Tensor) -> bool:
    """A tensor of equal dtype, shape and numbers."""
    return isinstance(one, Tensor) and one.dtype == other.dtype and torch.equal(one, other)


def trouble(call: str, wrong: bool) -> bool:
    """True if something is wrong on a rank, or if one does not come out of this call."""
    store = dist.distributed_c10d._get_default_store()
    keys = [f"{call} {rank}" for rank in range(dist.get_world_size())]
    store.set(keys[dist.get_rank()], str(wrong))
    end = time.monotonic() + PATIENCE
    while not store.check(keys):
        if time.monotonic() > end:
            return True
        time.sleep(0.002)
    return any(store.get(key) == b"True" for key in keys)


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare the sums on all ranks, then what went between the nodes, in each layout."""
    for ranks in sizes:
        answers, wire = attempt_on_ranks(attempt, all_calls, each=[LAYOUTS[ranks]] * ranks)
        wire["call"] = (wire["line"] == "").groupby(wire["rank"]).cumsum()
        wire = wire[wire["line"] != ""]
        for call, of_ranks in enumerate(zip(*answers, strict=True)):
            nodes, own = LAYOUTS[ranks][call // 2], numbers(call, 1)
            called = (
                f"hierarchical_all_reduce(tensor, inside, between) on the nodes {nodes}; rank 0 "
                f"held {in_words(own)}, each next rank ten times as much"
            )
            total = numbers(call, int("1" * ranks))
            wrong = [r for r, one in enumerate(of_ranks) if not same(one["value"], total)]
            if wrong:
                came = f"{in_words(of_ranks[wrong[0]]['value'])} on rank {wrong[0]}"
                look = look_at_sum(wrong, of_ranks[wrong[0]], own, nodes)
                raise NotYet(called, came, f"{in_words(total)} on every rank", look)
            compare_wire(called, own.nbytes, nodes, wire[wire["call"] == call])
    return "the sum at 1 to 6 ranks on 1 to 3 nodes; its bytes once to and once from each leader"


def look_at_sum(wrong: list[int], answer: dict, one: Tensor, nodes: Nodes) -> str:
    """The thought behind a wrong sum: a rank's numbers are in it as often as its digit says."""
    rank, ranks = wrong[0], sum(map(len, nodes))
    node = next(node for node in nodes if rank in node)
    if answer["late"]:
        return "The sum came after your function had returned. Who waits for it?"
    if answer["elsewhere"]:
        return "The sum is in another tensor. Where does the caller look for it?"
    if not set(wrong) & {node[0] for node in nodes}:
        return f"The leaders have the sum over all ranks, rank {rank} has not. Who tells it?"
    times = (answer["value"].double() / one).flatten()
    if torch.allclose(times, torch.full_like(times, int("1" * ranks) / ranks)):
        return "This is the mean over the ranks. By how much is a sum larger than a mean?"
    if not torch.equal(times, times.round()):
        return "This is no sum of what the ranks held. What else is calculated here?"
    if len(times.unique()) > 1:
        return "Some are added up, some not. On which ranks is what a reduce leaves of any use?"
    digits = [int(times[0]) // 10**other % 10 for other in range(ranks)]
    if (most := max(digits)) > 1:
        return f"Numbers of rank {digits.index(most)} are in it {most} times. Which steps add them?"
    if [other for other in range(ranks) if digits[other]] == node:
        return f"This is the sum over the node {node}. How do the leaders put theirs together?"
    missing = [other for other in range(ranks) if not digits[other]]
    before = f"This is what rank {rank} had before. " if times[0] == 10**rank else ""
    return f"{before}The numbers of ranks {missing} are missing. At which step do they join?"


def compare_wire(called: str, size: int, nodes: Nodes, wire: pd.DataFrame) -> None:
    """Raise NotYet if the wrong ranks, or too many bytes, have gone between the nodes."""
    node_of = {rank: node for node, ranks in enumerate(nodes) for rank in ranks}
    for rank, node in node_of.items():
        rows = wire[wire["rank"] == rank]
        rows = rows[[len({node_of[one] for one in met_by(row, node_of)}) > 1 for row in rows.iloc]]
        if rows.empty:
            continue
        ops, sent, came = ", ".join(rows["op"]), rows["bytes"].sum(), rows["received"].sum()
        did = f"rank {rank} took part in {ops} with ranks of other nodes"
        required = "of each node its leader alone, with one operation"
        if rank != nodes[node][0] or len(rows) > 1:
            look = "Each one is a trip between the nodes. Which operation leaves all with the sum?"
            if rank != nodes[node][0]:
                look = "What can this rank tell the other nodes that its leader cannot?"
            raise NotYet(called, did, required, look)
        if (sent, came) != (size, size):
            look = "How many bytes has the tensor? What else is handed over, or in which dtype?"
            if came > sent:
                look = "How much would a leader receive in this way if there were a hundred nodes?"
            did += f": {sent} bytes handed over, {came} received"
            raise NotYet(called, did, f"{size} bytes handed over, {size} received", look)


def met_by(row: pd.Series, everyone: Iterable[int]) -> Iterable[int]:
    """The ranks that an operation brings together."""
    if row["op"] in ("send", "recv"):
        return {row["rank"], row["rank"] if pd.isna(row["peer"]) else row["peer"]}
    group = row["group"]
    return everyone if group == "default" else map(int, group.split()[1].split(","))
