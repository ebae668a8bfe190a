"""Seconds of arithmetic and seconds on the network for one step on one rank.

Deliberately ideal: the two overlap completely, and no other job uses the network. The result is a
lower bound of a step.
"""

from dataclasses import dataclass

from manyranks.planning.decoder import DecoderShape
from manyranks.planning.hardware import CALL_S, LINK_SHARE, Link
from manyranks.planning.messages import Message


@dataclass(frozen=True)
class Cluster:
    """Nodes of `gpus_per_node` GPUs: `inside` links them in a node, `between` links the nodes."""

    inside: Link
    between: Link
    gpus_per_node: int = 8


def flops(shape: DecoderShape, tokens: int, sequence: int, *, checkpoint: bool = False) -> float:
    """Floating-point operations of forward and backward for `tokens` tokens.

    6 for each active parameter and token, and for attention 12 · layers · width of all heads ·
    sequence (Chowdhery et al., "PaLM", 2022, appendix B): 2 for a multiplication and an addition in
    forward, twice that in backward. Checkpointing computes forward again: 8 in place of 6.
    """
    each = 6 * shape.active + 12 * shape.layers * shape.query_width * sequence
    return tokens * each * (8 / 6 if checkpoint else 1)


def call_seconds(message: Message, cluster: Cluster) -> float:
    """Seconds of a call in a ring: steps times latency, plus bytes over the slowest link.

    An all-to-all sends over the links in a node and between nodes at the same time, each part to
    its own destination. What is received has been sent by another rank: no seconds.
    """
    if message.op == "recv":
        return 0.0
    if message.op == "all_to_all":
        return all_to_all_seconds(message, cluster)
    ranks, in_node = message.ranks, members_in_node(message, cluster)
    nodes = -(-ranks // in_node)
    rounds = 2 if message.op == "all_reduce" else 1
    crossings = nodes - 1
    latency = (ranks - 1 - crossings) * cluster.inside.latency
    latency += crossings * cluster.between.latency
    return CALL_S + rounds * latency + in_ring(message) / bandwidth(in_node, nodes, cluster)


def all_to_all_seconds(message: Message, cluster: Cluster) -> float:
    """A latency, and the slower of two parts: bytes for ranks in the node, and for all others."""
    ranks, in_node = message.ranks, members_in_node(message, cluster)
    inside, shared = cluster.inside, cluster.gpus_per_node if cluster.between.per_node else 1
    seconds = message.bytes * (in_node - 1) / ranks / (LINK_SHARE * inside.bytes_per_second)
    latency = inside.latency
    if ranks > in_node:
        port = LINK_SHARE * cluster.between.bytes_per_second / shared
        seconds = max(seconds, message.bytes * (ranks - in_node) / ranks / port)
        latency = cluster.between.latency
    return CALL_S + latency + seconds


def in_ring(message: Message) -> float:
    """Bytes that each rank sends in a ring for one such call.

    An all-gather or reduce-scatter of S bytes takes N - 1 steps, and each rank sends (N - 1) / N S;
    an all-reduce twice that (Patarasuk and Yuan, 2009). A broadcast passes all S along the ring,
    and its last rank sends nothing, so the mean is the same. In an all-to-all each rank keeps 1 / N
    of its bytes. A send is no ring: all S are sent, and a receive sends nothing.
    """
    if message.op in ("send", "recv"):
        return message.bytes
    whole, rounds = max(message.bytes, message.received), 2 if message.op == "all_reduce" else 1
    return rounds * whole * (message.ranks - 1) / message.ranks


def between_nodes(message: Message, cluster: Cluster) -> float:
    """Of these bytes, those that leave the node, as a mean over its ranks.

    A ring of ranks that are numbered node by node leaves each node once; in an all-to-all each rank
    sends to all ranks of the other nodes.
    """
    in_node = members_in_node(message, cluster)
    if message.op == "all_to_all":
        return message.bytes * (message.ranks - in_node) / message.ranks
    return in_ring(message) / in_node if message.ranks > in_node else 0.0


def bandwidth(in_node: int, nodes: int, cluster: Cluster) -> float:
    """Bytes per second that each rank of a ring can send, on all its links at once.

    Inside a node that is the GPU's link. Between nodes, a node's members share the ring's bytes
    among their network ports. All groups of a node send at the same time, so a group has the ports
    of its own members, or its share of the node's only port.
    """
    links = []
    if in_node > 1:
        links.append(cluster.inside.bytes_per_second)
    if nodes > 1:
        shared = cluster.gpus_per_node if cluster.between.per_node else 1
        links.append(in_node * cluster.between.bytes_per_second / shared)
    return LINK_SHARE * min(links)


def members_in_node(message: Message, cluster: Cluster) -> int:
    """How many ranks of the group are in one node; ranks are numbered node by node."""
    return min(message.ranks, max(1, cluster.gpus_per_node // message.stride))
