# %% the other direction only, as a dict
# told: This is a dict; a list is asked for
def where_is(gpus):
    ranks = iter(range(sum(gpus)))
    return {(node, local): next(ranks) for node, count in enumerate(gpus) for local in range(count)}


# %% bisect_left finds the node before, for the first rank of a node
# told: no such local rank on it
from bisect import bisect_left
from itertools import accumulate


def where_is(gpus):
    ends = [0, *accumulate(gpus)]
    nodes = [max(0, bisect_left(ends, rank) - 1) for rank in range(ends[-1])]
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
# told: find at index r for rank r
edit("return [(node, local)", "return [[node, local]")


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


# %% remembers the places by the identity of a list that changes
# told: keep from one call to the next
known = {}


def where_is(gpus):
    if id(gpus) not in known:
        known[id(gpus)] = [(node, local) for node, n in enumerate(gpus) for local in range(n)]
    return known[id(gpus)]
