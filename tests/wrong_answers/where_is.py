# %% the other direction only, as a dict
# told: no key is needed
def where_is(gpus):
    ranks = iter(range(sum(gpus)))
    return {(node, local): next(ranks) for node, count in enumerate(gpus) for local in range(count)}


# %% as if every node had as many GPUs as the smallest one
# told: as many GPUs as the smallest one
def where_is(gpus):
    return [divmod(rank, max(1, min(gpus))) for rank in range(sum(gpus))]


# %% bisect_left finds the node before, for the first rank of a node
# told: a local rank that does not exist there
from bisect import bisect_left
from itertools import accumulate


def where_is(gpus):
    ends = [0, *accumulate(gpus)]
    nodes = [max(0, bisect_left(ends, rank) - 1) for rank in range(ends[-1])]
    return [(node, rank - ends[node]) for rank, node in enumerate(nodes)]


# %% bisect_right finds the end of the rank's node, and not its beginning
# told: There is no such node
from bisect import bisect_right
from itertools import accumulate


def where_is(gpus):
    ends = [0, *accumulate(gpus)]
    nodes = [bisect_right(ends, rank) for rank in range(ends[-1])]
    return [(node, rank - ends[node]) for rank, node in enumerate(nodes)]


# %% takes the GPUs out of the caller's list
# told: Which line changes the caller's list
def where_is(gpus):
    places, node = [], 0
    while gpus:
        places += [(node, local) for local in range(gpus.pop(0))]
        node += 1
    return places


# %% says where this process runs, and not where all ranks would
# told: an entry for each rank
import os


def where_is(gpus):
    return [(int(os.environ.get("GROUP_RANK", 0)), int(os.environ.get("LOCAL_RANK", 0)))]


# %% pop takes the nodes from the end of the list
# told: but their order is not
def where_is(gpus):
    left, places = gpus.copy(), []
    while left:
        count = left.pop()
        places += [(len(left), local) for local in range(count)]
    return places


# %% a place is a list, which is not equal to a tuple
# told: find the tuple (node, local rank) among them
def where_is(gpus):
    return [[node, local] for node, count in enumerate(gpus) for local in range(count)]


# %% goes on by one node only when one is full
# told: A rank is on a node without GPUs
def where_is(gpus):
    places, node, local = [], 0, 0
    for _ in range(sum(gpus)):
        if local == gpus[node]:
            node, local = node + 1, 0
        places.append((node, local))
        local += 1
    return places


# %% one tensor of all places, in which index finds no tuple
# told: This is a tensor; a list is asked for
import torch


def where_is(gpus):
    nodes = torch.repeat_interleave(torch.arange(len(gpus)), torch.tensor(gpus))
    return torch.stack([nodes, torch.cat([torch.arange(count) for count in gpus])], dim=1)


# %% asks for the rank of a process that is in no group
# told: No ranks are running here
import torch.distributed as dist


def where_is(gpus):
    rank = dist.get_rank()
    return [divmod(rank, gpus[0])]


# %% remembers the places by the identity of a list that changes
# told: keep from one call to the next
known = {}


def where_is(gpus):
    if id(gpus) not in known:
        known[id(gpus)] = [(node, local) for node, n in enumerate(gpus) for local in range(n)]
    return known[id(gpus)]


# %% collects the places, and does not return them
# told: Does the function return its result
def where_is(gpus):
    places = []
    for node, count in enumerate(gpus):
        for local in range(count):
            places.append((node, local))


# %% the numbers are tensors, which a set or a dict does not find
# told: Nodes and local ranks are whole numbers
import torch


def where_is(gpus):
    nodes = torch.repeat_interleave(torch.arange(len(gpus)), torch.tensor(gpus))
    return list(zip(nodes, torch.cat([torch.arange(count) for count in gpus]), strict=True))


# %% the nodes in one list, the local ranks in another
# told: These are two lists
def where_is(gpus):
    nodes, locals_ = [], []
    for node, count in enumerate(gpus):
        nodes += [node] * count
        locals_ += range(count)
    return nodes, locals_


# %% each entry also holds the rank
# told: The rank itself is the index
def where_is(gpus):
    pairs = [(node, local) for node, count in enumerate(gpus) for local in range(count)]
    return [(rank, *pair) for rank, pair in enumerate(pairs)]


# %% assumes that a node has at most 8 GPUs
# told: A node has at most 8 GPUs here
def where_is(gpus):
    return [(node, local) for node in range(len(gpus)) for local in range(8) if local < gpus[node]]
