"""Say where each rank runs: on which node, and with which local rank.

`gpus[i]` is the number of GPUs of node i, so `[2, 3]` means two nodes and five ranks. Return a list
whose entry r is the tuple (node, local rank) of rank r.

- A launcher starts one process for each GPU: first all of node 0, then all of node 1, and so on.
- Ranks count the processes of all nodes. The local rank starts again at 0 on each node.
- Nodes may have different numbers of GPUs. A node may have none: no rank runs there, but it keeps
  its number.
- Do not change `gpus`.
"""

from collections.abc import Callable
from typing import Any

from ddp_workbook.exercises import Alone, Edit, Look, When, body, edit
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


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    ### BEGIN SOLUTION
    return [(node, local) for node, count in enumerate(gpus) for local in range(count)]
    ### END SOLUTION


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


def two_lists(value: Any) -> bool:
    """One for the nodes and one for the local ranks, it seems."""
    return isinstance(value, list) and [*map(type, value)] == [list, list]


def same(came: Any, right: Any) -> bool:
    """Whether `came.index` would find each place of `right`."""
    return isinstance(came, list) and all(map(is_place, came)) and came == right


def shown(value: Any) -> str:
    """The places in words; if a number only looks like an int, also the types of its place."""
    if not isinstance(value, list):
        return in_words(value)
    odd = [one for one in value if isinstance(one, tuple) and not all(map(is_index, one))]
    types = " and ".join(map(kind, odd[0])) if odd else ""
    return in_words(value) + (f", where a place is a tuple of {types}" if odd else "")


def some(holds: Callable[[Any, list[int]], Any]) -> When:
    """Whether it is so of an entry of the list and `gpus`."""
    return When(
        lambda seen: (
            isinstance(seen.value, list) and any(holds(one, seen.case) for one in seen.value)
        )
    )


def in_ranks(place: str) -> Edit:
    """The place of each rank by a formula."""
    return body(f"return [{place} for rank in range(sum(gpus))]")


A_LIST = "gpus is a list: how many GPUs node 0 has, how many node 1 has, and so on."
PLACE, NODES, GPUS = "(node, local)", "enumerate(gpus)", "range(count)"
CASES = [
    [2, 4, 5, 1],  # all nodes differ, and the mean is yet another number: most mistakes show here
    *([3, 3], [2, 2, 2], [0, 4, 1, 0], [3, 0, 0, 2], [0, 2], [3], [1, 16]),
    [2, 4, 5, 1],
]
CHECK = Alone(
    cases=CASES,
    called="where_is({case})",
    given=the_callers_list,
    observe=plain,
    looks=[
        Look(
            mistakes={
                "Return a list. The rank is the index, so no key is needed.": When(
                    lambda seen: isinstance(seen.value, dict)
                ),
                "These are two lists. What does the caller find at index r for rank r?": When(
                    lambda seen: two_lists(seen.value) and len(seen.right) != 2
                ),
                "The entries are lists. Does `index` find the tuple (node, local rank) among "
                "them?": some(lambda one, gpus: isinstance(one, list)),
                "An entry is a tuple of two numbers, node and local rank. The rank itself is the "
                "index.": some(lambda one, gpus: not isinstance(one, tuple) or len(one) != 2),
                "Nodes and local ranks are whole numbers. Which line turns them into something "
                "else?": some(lambda one, gpus: not is_place(one)),
                "A rank is on a node without GPUs. Which is the next node that has some?": some(
                    lambda one, gpus: dict(enumerate(gpus)).get(one[0]) == 0
                ),
                "The entries are right, but their order is not. Where does rank 1 run?": When(
                    lambda seen: isinstance(seen.value, list) and sorted(seen.value) == seen.right
                ),
                "Return an entry for each rank. How many ranks are there?": When(
                    lambda seen: isinstance(seen.value, list) and len(seen.value) != len(seen.right)
                ),
                "There is no such node. Which numbers do the nodes have?": some(
                    lambda one, gpus: one[0] not in range(len(gpus))
                ),
                "A node has a local rank that does not exist there. Which local ranks does a node "
                "with two GPUs have?": some(lambda one, gpus: one[1] not in range(gpus[one[0]])),
            },
            otherwise="Which processes has the launcher already started when it comes to a node?",
            words=shown,
            same=same,
        )
    ],
    mistakes={
        "The ranks are dealt out to the nodes like cards. When does the launcher move to the next "
        "node?": in_ranks("(rank % len(gpus), rank // len(gpus))"),
        "The ranks are dealt out in rounds, one on each node that has room. When does the launcher "
        "move to the next node?": edit(
            f"for local in {GPUS}]",
            f"for local in {GPUS}]\n    return sorted(places, key=lambda place: place[1])",
            "return [",
            "places = [",
        ),
        "This is (local rank, node). Which of the two comes first?": edit(PLACE, "(local, node)"),
        "The nodes are counted from 1. At which number does PyTorch start?": edit(
            NODES, "enumerate(gpus, 1)"
        ),
        "The local ranks are counted from 1. At which number does PyTorch start?": edit(
            GPUS, "range(1, count + 1)"
        ),
        "Both are counted from 1. At which number does PyTorch start?": edit(
            NODES, "enumerate(gpus, 1)", GPUS, "range(1, count + 1)"
        ),
        "These are ranks, not local ranks. At which local rank does each node start?": edit(
            "range(count)", "range(sum(gpus[:node]), sum(gpus[:node]) + count)"
        ),
        "This assumes that every node has as many GPUs as node 0. How many does each have?": (
            in_ranks("divmod(rank, gpus[0] or 1)")
        ),
        "This assumes that every node has the mean number of GPUs. How many does each have?": (
            in_ranks("divmod(rank, sum(gpus) // len(gpus))")
        ),
        "This assumes that every node has as many GPUs as the smallest one. How many does each "
        "have?": in_ranks("divmod(rank, min(gpus) or 1)"),
        "This assumes that every node has as many GPUs as the largest one. How many does each "
        "have?": in_ranks("divmod(rank, max(gpus))"),
        "This assumes that every node has 8 GPUs. How many does each have?": (
            in_ranks("divmod(rank, 8)")
        ),
        "A node has at most 8 GPUs here. Where does the task say so?": edit(
            GPUS, "range(min(count, 8))"
        ),
        "All ranks are on one node. When does the launcher move to the next?": in_ranks(
            "(0, rank)"
        ),
        "Two nodes with the same number of GPUs are taken for one node. What tells them apart?": (
            edit(PLACE, "(gpus.index(count), local)")
        ),
        "A node without GPUs is not counted here. Which number does the node after it have?": edit(
            NODES, "enumerate(filter(None, gpus))"
        ),
        "A node without GPUs was given a rank. How many ranks run there?": edit(
            GPUS, "range(max(1, count))"
        ),
        "The last node is missing. Up to which number are nodes counted?": edit(
            NODES, "enumerate(gpus[:-1])"
        ),
        "The last rank is missing. Up to which number are ranks counted?": edit(
            f"{GPUS}]", f"{GPUS}][:-1]"
        ),
        "The last GPU of each node is missing. Up to which number are they counted?": edit(
            GPUS, "range(count - 1)"
        ),
        "One too many on each node. Up to which number are GPUs counted?": edit(
            GPUS, "range(count + 1)"
        ),
    },
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
    proves="the place of every rank, on 1 to 4 nodes with 0 to 16 GPUs each, equally many or not",
)
