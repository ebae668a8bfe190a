"""Say where each rank lives: on which node, and which number it has there.

A launcher goes from node to node and starts a process for each GPU: first all of node 0, then all
of node 1, and so on. Ranks count these processes through the whole world; the local rank starts
again at 0 on each node. `gpus[i]` is the number of GPUs of node i, so `[2, 3]` means five ranks.

Nodes need not have equally many. One may have none: then no rank lives there, and the node keeps
its number all the same. The list belongs to the caller, who goes on using it.

What you return is read in both directions: at index r stands where rank r lives, and the index of
(node, local rank) in the list is the rank.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

from ddp_workbook.exercises import Attempt, NotYet, attempt_alone, in_words

HINTS = [
    "Play the launcher with pencil and paper, for [2, 3]: which node do you come to first, and how "
    "many processes do you start there before you go to the next one?",
    "Nothing has to be divided. Two loops, one inside the other: one goes from node to node, the "
    "other one counts the GPUs of this node.",
    "enumerate(gpus) gives the number of a node together with its number of GPUs, and range of "
    "the latter gives the local ranks.",
]

A_LIST = "gpus is a list: how many GPUs node 0 has, how many node 1 has, and so on."
FOR_ERRORS = {
    "by zero": "A node may have no GPU. What is divided by, and must anything be divided?",
    "out of range": "How many nodes are there, how many ranks, and which one is counted here?",
    "process group": "There are no ranks here: one process says where all of them would live.",
    "'int' and 'list'": A_LIST,
    "'list' and 'int'": A_LIST,
    "'list' object cannot be interpreted": A_LIST,
    "'int' object is not iterable": "gpus[i] is a number. How does one count up to it?",
}
SIZES = (1, 2, 3, 4)  # nodes
EVEN = {1: [2], 2: [3, 3], 3: [2, 2, 2], 4: [2, 2, 2, 2]}  # GPUs
UNEVEN = {1: [3], 2: [2, 4], 3: [2, 4, 5], 4: [2, 4, 5, 1]}
# Here some nodes have none: at the beginning, in between, at the end.
WITHOUT = {1: [1], 2: [0, 2], 3: [2, 0, 3], 4: [3, 0, 0, 2]}
WITHOUT_TOO = {1: [2], 2: [2, 0], 3: [0, 1, 0], 4: [0, 4, 1, 0]}

Places = list[tuple[int, int]]


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    ### BEGIN SOLUTION
    return [(node, local) for node, count in enumerate(gpus) for local in range(count)]
    ### END SOLUTION


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Ask for 1 to 4 nodes, with equally many GPUs, with unequally many, and with none on some."""
    down = sorted(sizes, reverse=True)  # more nodes tell more
    kinds = (EVEN, UNEVEN, WITHOUT, WITHOUT_TOO)
    cases = [kind[nodes] for kind in kinds for nodes in down]
    attempt_alone(attempt, ask_and_compare, case=cases)
    return (
        "the node and the local rank of every rank, on 1 to 4 nodes with 0 to 5 GPUs each, equally "
        "many or not"
    )


def ask_and_compare(where_is: Callable, cases: list[list[int]]) -> None:
    """In the process of the attempt: call it for each case."""
    for gpus in cases:
        given = list(gpus)
        answer = where_is(given)
        right = list(dealt_in_blocks(gpus))
        problem = another_form(answer, sum(gpus)) or another_place(answer, right, gpus)
        if not problem and given != gpus:
            problem = f"gpus has become {in_words(given)}", "Which line changes the caller's list?"
        if problem:
            raise NotYet(f"where_is({gpus})", problem[0], in_text(right), problem[1])


def dealt_in_blocks(gpus: list[int]) -> Iterator[tuple[int, int]]:
    """Node and local rank of rank 0, of rank 1, and so on."""
    for node, count in enumerate(gpus):
        yield from ((node, local) for local in range(count))


def in_text(places: Any) -> str:
    """All of the places: there are a few more than `in_words` would show."""
    return f"[{', '.join(map(in_words, places))}]"


def is_number(value: Any) -> bool:
    """An int, and neither True nor False."""
    return isinstance(value, int) and not isinstance(value, bool)


def another_form(answer: Any, ranks: int) -> tuple[str, str] | None:
    """What came back and where to look, if it is no list of pairs of numbers."""
    if answer is None:
        return "None", "Does the function return what it has found, on every path?"
    if isinstance(answer, dict):
        return in_words(answer), "A list is asked for: the rank is the index, it needs no key."
    if not isinstance(answer, list | tuple):
        look = "Is this a list? The caller looks into it as often as it likes, at any index."
        return f"an object of type {type(answer).__name__}", look
    if list(map(type, answer)) == [list, list] and ranks != 2:
        return in_words(answer), "These are two lists. What stands at index r for rank r?"
    for rank, place in enumerate(answer):
        came_back = f"at index {rank}: {in_words(place)}, which is no pair of two numbers"
        if not isinstance(place, list | tuple):
            return came_back, "Node and local rank, both belong to a rank."
        if len(place) != 2:
            return came_back, "Node and local rank: two numbers. The rank itself is the index."
        if not all(map(is_number, place)):
            came_back = f"at index {rank} a pair of {' and '.join(type(n).__name__ for n in place)}"
            return came_back, "Nodes and local ranks are whole numbers. Which line makes others?"
    return None


def another_place(answer: Any, right: Places, gpus: list[int]) -> tuple[str, str] | None:
    """What came back and where to look, if a rank lives elsewhere."""
    places = [tuple(place) for place in answer]
    return None if places == right else (in_text(places), thought(places, right, gpus))


def thought(places: Places, right: Places, gpus: list[int]) -> str:
    """The thought behind wrong places."""
    for look, others in typical(right, gpus):
        if places == others:
            return look
    nodes, locals_ = ([place[i] for place in places] for i in (0, 1))
    if empty := [n for n in nodes if 0 <= n < len(gpus) and not gpus[n]]:
        return (
            f"Node {empty[0]} has no GPUs, and ranks live there. Which node is the next with any?"
        )
    if places == right[: len(places)]:
        return f"Ranks from {len(places)} on are missing. Where does the counting stop?"
    if len(places) > len(set(places)):
        twice = next(place for place in places if places.count(place) > 1)
        return f"{twice} is there more than once. Can two ranks have the same GPU?"
    if sorted(places) == sorted(right):
        return "The places are right, their order is not. Where does rank 1 live?"
    if strange := [(n, k) for n, k in places if not (0 <= n < len(gpus) and 0 <= k < gpus[n])]:
        return f"There is no {strange[0]}: which nodes are there, and which GPUs do they have?"
    if len(places) != len(right):
        return f"There are {len(right)} GPUs. How many ranks has the launcher started?"
    if nodes == [place[0] for place in right]:
        return "The nodes are right. Where does the local rank begin again, and at which number?"
    if locals_ == [place[1] for place in right]:
        return "The local ranks are right. When does the launcher go to the next node?"
    return "Which processes has the launcher started before it comes to a node?"


def typical(right: Places, gpus: list[int]) -> Iterator[tuple[str, Places]]:
    """Where to look, and the wrong places that this thought gives."""
    ranks, nodes = range(len(right)), len(gpus)
    cards = "The ranks are dealt out to the nodes like cards. When does the launcher leave a node?"
    yield cards, [(rank % nodes, rank // nodes) for rank in ranks]
    most = max(gpus)
    yield cards, [(n, k) for k in range(most) for n in range(nodes) if k < gpus[n]]
    yield "This is (local rank, node). Which of the two comes first?", [(k, n) for n, k in right]
    one = "{} counted from 1. At which number does PyTorch begin to count?"
    yield one.format("The nodes are"), [(n + 1, k) for n, k in right]
    yield one.format("The local ranks are"), [(n, k + 1) for n, k in right]
    yield one.format("Both are"), [(n + 1, k + 1) for n, k in right]
    look = "These are ranks, not local ranks: with which one does a node begin to count?"
    yield look, [(n, rank) for rank, (n, _) in enumerate(right)]
    look = "A node without GPUs has been given a rank. How many live there?"
    yield look, list(dealt_in_blocks([max(1, count) for count in gpus]))
    look = "The last rank is missing. Up to which number are ranks counted?"
    yield look, right[:-1]
    look = "The last GPU of each node is missing. Up to which number are they counted?"
    yield look, list(dealt_in_blocks([max(0, count - 1) for count in gpus]))
    look = "One too many on each node. Up to which number are GPUs counted?"
    yield look, list(dealt_in_blocks([count + 1 for count in gpus]))
    if 0 not in gpus:
        look = "The last node is missing. Up to which number are nodes counted?"
        yield look, list(dealt_in_blocks(gpus[:-1]))
        means = dict.fromkeys((sum(gpus) // nodes, math.ceil(sum(gpus) / nodes)), "the mean")
        for count, what in (means | {n: f"node {i}" for i, n in enumerate(gpus)}).items():
            look = f"As if every node had as many GPUs as {what}, {count}. How many has each?"
            yield look, [divmod(rank, count) for rank in ranks]
            yield look, list(dealt_in_blocks([count] * nodes))
        look = "All ranks on one node. When does the launcher go to the next?"
        yield look, [(0, rank) for rank in ranks]
