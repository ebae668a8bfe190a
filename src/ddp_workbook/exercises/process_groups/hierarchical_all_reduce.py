"""Add up a tensor over all ranks, so that little of it travels between the nodes.

Sending is fast inside a node and slow between nodes. So only one rank of each node, its leader,
communicates with other nodes. All ranks call your function, with tensors of the same shape and
dtype. Afterwards `tensor` itself holds the sum over all ranks, on every rank.

The two groups exist already. `inside` holds the ranks of the calling rank's node, its leader first.
`between` holds the leaders of all nodes; on a rank that is no leader it is None.

- Use a single operation between the nodes, in which only the leaders take part. Each leader sends
  as many bytes as the tensor has, and receives as many.
- Inside a node you may do what you like.
- Nodes may differ in size. A node may have only one rank, and there may be only one node.
- The tensor may be the transpose of another one.
- When your function returns, no operation is still running. What it returns does not matter.
"""

from collections.abc import Callable
from functools import cache

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, Pattern, body, edit
from ddp_workbook.judging.equality import values_equal
from ddp_workbook.judging.values import in_words

MINUTES = 15
HINTS = [
    "Work in three steps. What does the leader know after the first one? Which ranks do not have "
    "the sum after the second one?",
    "At first only the leader needs the node's sum. A rank can tell from `between` whether it is a "
    "leader.",
    "Which three collectives do that? reduce and broadcast name one rank: group_dst and group_src "
    "count inside the group, dst and src in the world.",
]
Nodes = tuple[tuple[int, ...], ...]  # the ranks of each one; the first of them leads it
Call = tuple[Nodes, Callable[[int], Tensor]]  # and what a rank holds
LAYOUTS: dict[int, list[Nodes]] = {  # at each world size
    1: [((0,),)],
    2: [((0, 1),), ((0,), (1,))],
    3: [((0,), (1, 2)), ((0, 1), (2,))],
    4: [((0, 1), (2, 3)), ((0,), (1, 2, 3))],
    6: [((0, 1), (2,), (3, 4, 5)), ((0,), (1, 2, 3), (4, 5))],
}


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


def cases(size: int) -> list[Call]:
    """Three calls, on two layouts of nodes in turn."""
    kinds = (powers_of_ten, fractions, large)
    return list(zip(LAYOUTS[size] * len(kinds), kinds, strict=False))


def powers_of_ten(rank: int) -> Tensor:
    """The digits of their sum say how often each rank's numbers are in it."""
    return torch.tensor([1, 2, 3]) * 10**rank


def fractions(rank: int) -> Tensor:
    """Of both signs, transposed, in the middle of other memory; inf on rank 1."""
    whole = (torch.arange(10.0).reshape(5, 2) + 0.3) * (-2) ** rank
    whole[1, 1] = torch.inf if rank == 1 else 0.7
    return whole[1:4].T


def large(rank: int) -> Tensor:
    """A single number, negative on odd ranks, which float32 cannot hold."""
    return torch.tensor((2**25 + 1) * (-3) ** rank)


@cache
def groups(nodes: Nodes) -> tuple[ProcessGroup, ProcessGroup]:
    """This rank's node, and the leaders; in a rank."""
    inside, _ = dist.new_subgroups_by_enumeration([list(node) for node in nodes])
    return inside, dist.new_group([node[0] for node in nodes])


def make_args(case: Call, rank: int) -> tuple[Tensor, ProcessGroup, ProcessGroup | None]:
    """The arguments. All groups are made before the first call: to make them is a meeting."""
    nodes, tensor_of = case
    inside, between = {layout: groups(layout) for layout in LAYOUTS[len(ranks(case))]}[nodes]
    return tensor_of(rank), inside, between if leads(nodes, rank) else None


def call_text(case: Call) -> str:
    """The nodes, and what their ranks held."""
    tensors = ", ".join(f"{in_words(case[1](rank))} on rank {rank}" for rank in ranks(case))
    name = "hierarchical_all_reduce(tensor, inside, between)"
    return f"{name} on the nodes {case[0]}\nwhich held {tensors}"


def ranks(case: Call) -> tuple[int, ...]:
    """Those of all nodes."""
    return sum(case[0], ())


def node_of(nodes: Nodes, rank: int) -> tuple[int, ...]:
    """The ranks of this rank's node."""
    return next(node for node in nodes if rank in node)


def leads(nodes: Nodes, rank: int) -> bool:
    """Whether this rank is the first of its node."""
    return node_of(nodes, rank)[0] == rank


def total(case: Call) -> Tensor:
    """The sum over all ranks."""
    return sum(map(case[1], ranks(case)))


def leaders_correct(obs: Observation) -> bool:
    """Whether all leaders have the sum."""
    return all(
        values_equal(rank_obs.value, rank_obs.expected)
        for rank_obs in obs.all_ranks
        if leads(obs.case[0], rank_obs.rank)
    )


def cross_node_calls(obs: Observation) -> list[tuple[str, int, int]]:
    """Of each operation that has joined ranks of several nodes: name, bytes sent, received."""
    node = node_of(obs.case[0], obs.rank)
    return [
        (row["op"], bytes_sent(row, obs.rank), row["received"])
        for row in obs.communication
        if not set(ranks_in(row, obs)) <= set(node)
    ]


def bytes_sent(row: dict, rank: int) -> int:
    """The bytes that this rank has handed in; a rank that only receives has handed in none."""
    receives = row["op"] == "recv" or (
        row["op"] in ("broadcast", "scatter") and row["peer"] != rank
    )
    return 0 if receives else row["bytes"]


def ranks_in(row: dict, obs: Observation) -> list[int]:
    """The ranks that an operation joins."""
    if row["op"] in ("send", "recv"):
        return [obs.rank, obs.rank if row["peer"] is None else row["peer"]]
    group = row["group"].removeprefix("ranks ")
    return list(range(obs.size)) if group == "default" else list(map(int, group.split(",")))


def required_traffic(case: Call, rank: int) -> list[tuple[int, int]]:
    """Bytes sent and received in the one operation of a leader, if there are several nodes."""
    is_crossing = len(case[0]) > 1 and leads(case[0], rank)
    return [(total(case).nbytes, total(case).nbytes)] if is_crossing else []


def describe_traffic(obs: Observation) -> str:
    """What the rank did with ranks of other nodes."""
    calls = [
        f"{op} ({num_sent} bytes sent, {num_received} received)"
        for op, num_sent, num_received in cross_node_calls(obs)
    ]
    return f"rank {obs.rank} took part in {' and '.join(calls) or 'nothing'}"


REDUCE = "dist.reduce(tensor, group_dst=0, group=inside)"
BROADCAST = "dist.broadcast(tensor, group_src=0, group=inside)"
ADD = "dist.all_reduce(tensor, group=inside)"
CHECK = DistributedCheck(
    cases=cases,
    sizes=(1, 2, 3, 4, 6),
    call_text=call_text,
    make_args=make_args,
    observe=lambda returned, tensor, *_: tensor,
    compare={
        "sum": Comparison(
            "Print the tensor on every rank after each step. On which ranks is the result of a "
            "reduce valid?",
            total,
        ),
        "between nodes": Comparison(
            "How many bytes does the tensor have? And how many would each leader send and "
            "receive if there were a hundred nodes?",
            required_traffic,
            select=lambda obs: [
                (num_sent, num_received) for _, num_sent, num_received in cross_node_calls(obs)
            ],
            actual=lambda obs: (
                "with ranks of other nodes\n" + "\n".join(map(describe_traffic, obs.all_ranks))
            ),
            required=lambda obs: (
                "only the leader of each node takes part, in one operation: "
                f"{total(obs.case).nbytes} bytes sent, and as many received"
            ),
        ),
    },
    mistakes={
        "The caller's tensor has not changed. Into which memory do your operations write?": [
            edit(REDUCE, f"tensor = tensor.clone()\n    {REDUCE}"),
            edit(REDUCE, f"tensor = tensor.contiguous()\n    {REDUCE}"),
        ],
        "This is the sum over rank {rank}'s node. How do the leaders combine their sums?": body(
            ADD
        ),
        "The nodes' sums are counted several times. Which steps add them?": body(
            f"{ADD}\ndist.all_reduce(tensor)"
        ),
        "Only the leaders' numbers are in this sum. In which step do the other ranks join?": edit(
            REDUCE, ""
        ),
        "The leaders have added up before they knew their nodes' sums. Which step comes first?": (
            edit(REDUCE, "", BROADCAST, ADD)
        ),
        "The last step adds again inside the node. Which operation copies the leader's tensor?": (
            edit(REDUCE, ADD, BROADCAST, ADD)
        ),
        "The leaders have the sum over all ranks, rank {rank} does not. Who tells it?": Pattern(
            leaders_correct, "sum"
        ),
        "What can another rank tell the other nodes that its leader cannot?": Pattern(
            lambda obs: any(
                rank_obs.value for rank_obs in obs.all_ranks if rank_obs.expected == []
            ),
            "between nodes",
        ),
        "Each operation is a trip between the nodes. Which single one gives the sum to every "
        "leader?": Pattern(lambda obs: len(obs.value) > 1, "between nodes"),
    },
    errors={
        "hangs": "Which ranks call each operation? A leader may be alone on its node. `between` is "
        "None on ranks that are not leaders, and for a collective group=None means the world.",
        "is not part of group": "dst and src are ranks in the world. Which arguments take the rank "
        "inside the group?",
        "NoneType": "On which ranks is `between` None, and what should they do instead?",
    },
    on_pass="the sum at 1 to 6 ranks on 1 to 3 nodes; each leader sends and receives its bytes "
    "once",
)
