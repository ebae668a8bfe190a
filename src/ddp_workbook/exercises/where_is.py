"""Say where each rank runs: on which node, and with which local rank.

`gpus[i]` is the number of GPUs of node i, so `[2, 3]` means two nodes and five ranks. Return a list
whose entry r is the tuple (node, local rank) of rank r.

- A launcher starts one process for each GPU: first all of node 0, then all of node 1, and so on.
- Ranks count the processes of all nodes. The local rank starts again at 0 on each node.
- Nodes may have different numbers of GPUs. A node may have none: no rank runs there, but it keeps
  its number.
- Do not change `gpus`.
"""

from typing import Any

from ddp_workbook.exercises import ANY, Alone, Look, When
from ddp_workbook.exercises.judging.same import is_index, kind
from ddp_workbook.exercises.judging.values import in_words

MINUTES = 7
HINTS = [
    "Play the launcher on paper, for [2, 3]. On which node do you start, and how many processes do "
    "you start there before you move to the next node?",
    "No division is needed. Use two nested loops: the outer one goes over the nodes, the inner one "
    "counts the GPUs of that node.",
    "The outer loop needs the number of a node together with its number of GPUs. What does "
    "enumerate give you?",
]
Places = list[tuple[int, int]]


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    ### BEGIN SOLUTION
    return [(node, local) for node, count in enumerate(gpus) for local in range(count)]
    ### END SOLUTION


def filled(gpus: list[int]) -> Places:
    """All places, node after node."""
    return [(node, local) for node, count in enumerate(gpus) for local in range(count)]


def as_if_each_had(gpus: list[int], count: int) -> Any:
    """The places on nodes with `count` GPUs each; dividing by 0 fails in many ways."""
    return [divmod(rank, count) for rank in range(sum(gpus))] if count else ANY


def places_from(node: int, local: int):
    """The places if nodes and local ranks are counted from these numbers."""
    return lambda gpus: [(n + node, k + local) for n, k in filled(gpus)]


CALLERS_LIST: list[int] = []


def the_callers_list(gpus: list[int]) -> tuple[list[int]]:
    """The same list in every call: an answer that is cached by its identity is out of date."""
    CALLERS_LIST[:] = gpus
    return (CALLERS_LIST,)


def plain(returned: Any, _: list[int]) -> Any:
    """Named tuples as plain ones, which they are equal to."""
    if not isinstance(returned, list | tuple):
        return returned
    return [tuple(place) if isinstance(place, tuple) else place for place in returned]


def is_place(value: Any) -> bool:
    """A tuple of two whole numbers, of any library's kind."""
    return isinstance(value, tuple) and len(value) == 2 and all(map(is_index, value))


def equal(came: Any, right: Any) -> bool:
    """Whether `came.index` would find each place of `right`."""
    return right is ANY or (isinstance(came, list) and all(map(is_place, came)) and came == right)


def shown(value: Any) -> str:
    """The places in words; if a number only looks like an int, also the types of its place."""
    if not isinstance(value, list):
        return in_words(value)
    odd = [one for one in value if isinstance(one, tuple) and not all(map(is_index, one))]
    types = " and ".join(map(kind, odd[0])) if odd else ""
    return in_words(value) + (f", where a place is a tuple of {types}" if odd else "")


A_LIST = "gpus is a list: how many GPUs node 0 has, how many node 1 has, and so on."
FORM = {
    "Return a list. The rank is the index, so no key is needed.": When(
        lambda seen: isinstance(seen.value, dict)
    ),
    "Does every path through the function return the list?": When(lambda seen: seen.value is None),
    "Is this a list? The caller reads it several times, at any index.": When(
        lambda seen: not isinstance(seen.value, list)
    ),
    "These are two lists. What does the caller find at index r for rank r?": When(
        lambda seen: list(map(type, seen.value)) == [list, list] and len(seen.right) != 2
    ),
    "The entries are lists. Does `index` find the tuple (node, local rank) among them?": When(
        lambda seen: any(isinstance(place, list) for place in seen.value)
    ),
    "An entry is a tuple of two numbers, node and local rank. The rank itself is the index.": When(
        lambda seen: not all(isinstance(place, tuple) and len(place) == 2 for place in seen.value)
    ),
    "Nodes and local ranks are whole numbers. Which line turns them into something else?": When(
        lambda seen: not all(map(is_place, seen.value))
    ),
}
COUNTING = {
    "The ranks are dealt out to the nodes like cards. When does the launcher move to the next "
    "node?": (lambda gpus: [(rank % len(gpus), rank // len(gpus)) for rank in range(sum(gpus))]),
    "The ranks are dealt out in rounds, one on each node that has room. When does the launcher "
    "move to the next node?": lambda gpus: sorted(filled(gpus), key=lambda place: place[1]),
    "This is (local rank, node). Which of the two comes first?": (
        lambda gpus: [(local, node) for node, local in filled(gpus)]
    ),
    "The nodes are counted from 1. At which number does PyTorch start?": places_from(1, 0),
    "The local ranks are counted from 1. At which number does PyTorch start?": places_from(0, 1),
    "Both are counted from 1. At which number does PyTorch start?": places_from(1, 1),
    "These are ranks, not local ranks. At which local rank does each node start?": (
        lambda gpus: [(node, rank) for rank, (node, _) in enumerate(filled(gpus))]
    ),
    "This assumes that every node has as many GPUs as node 0. How many does each have?": (
        lambda gpus: as_if_each_had(gpus, gpus[0])
    ),
    "This assumes that every node has the mean number of GPUs. How many does each have?": (
        lambda gpus: as_if_each_had(gpus, sum(gpus) // len(gpus))
    ),
    "This assumes that every node has as many GPUs as the smallest one. How many does each have?": (
        lambda gpus: as_if_each_had(gpus, min(gpus))
    ),
    "This assumes that every node has as many GPUs as the largest one. How many does each have?": (
        lambda gpus: as_if_each_had(gpus, max(gpus))
    ),
    "All ranks are on one node. When does the launcher move to the next?": (
        lambda gpus: [(0, rank) for rank in range(sum(gpus))]
    ),
    "Two nodes with the same number of GPUs are taken for one node. What tells them apart?": (
        lambda gpus: [(gpus.index(count), k) for count in gpus for k in range(count)]
    ),
    "A node without GPUs is not counted here. Which number does the node after it have?": (
        lambda gpus: filled([count for count in gpus if count])
    ),
    "A node without GPUs was given a rank. How many ranks run there?": (
        lambda gpus: filled([max(1, count) for count in gpus])
    ),
    "The last node is missing. Up to which number are nodes counted?": (
        lambda gpus: filled(gpus[:-1])
    ),
    "The last rank is missing. Up to which number are ranks counted?": (
        lambda gpus: filled(gpus)[:-1]
    ),
    "The last GPU of each node is missing. Up to which number are they counted?": (
        lambda gpus: filled([max(0, count - 1) for count in gpus])
    ),
    "One too many on each node. Up to which number are GPUs counted?": (
        lambda gpus: filled([count + 1 for count in gpus])
    ),
    "A rank is on a node without GPUs. Which is the next node that has some?": When(
        lambda seen: (
            {node for node, _ in seen.value} & {n for n, c in enumerate(seen.case) if not c}
        )
    ),
    "The entries are right, but their order is not. Where does rank 1 run?": When(
        lambda seen: sorted(seen.value) == seen.right
    ),
    "Return an entry for each rank. How many ranks are there?": When(
        lambda seen: len(seen.value) != len(seen.right)
    ),
    "There is no such node. Which numbers do the nodes have?": When(
        lambda seen: any(node not in range(len(seen.case)) for node, _ in seen.value)
    ),
    "A node has a local rank that does not exist there. Which local ranks does a node with two "
    "GPUs have?": When(
        lambda seen: any(local not in range(seen.case[node]) for node, local in seen.value)
    ),
}
CHECK = Alone(
    # In the first, all nodes differ, and the mean is yet another number: most mistakes show there.
    cases=[[2, 4, 5, 1], [3, 3], [2, 2, 2], [0, 4, 1, 0], [3, 0, 0, 2], [0, 2], [3], [2, 4, 5, 1]],
    called="where_is({case})",
    given=the_callers_list,
    observe=plain,
    looks=[
        Look(
            right=filled,
            mistakes=FORM | COUNTING,
            otherwise="Which processes has the launcher already started when it comes to a node?",
            words=shown,
            same=equal,
        )
    ],
    keeps="Which line changes the caller's list?",
    errors={
        "by zero": "A node may have no GPU. What do you divide by, and do you need to divide?",
        "out of range": "How many nodes are there, how many ranks, and which one is counted here?",
        "process group": "No ranks are running here: one process says where all of them would run.",
        "'int' and 'list'": A_LIST,
        "'list' and 'int'": A_LIST,
        "'list' object cannot be interpreted": A_LIST,
        "'int' object is not iterable": "gpus[i] is a number. How do you count up to it?",
    },
    proves="the place of every rank, on 1 to 4 nodes with 0 to 5 GPUs each, equally many or not",
)
