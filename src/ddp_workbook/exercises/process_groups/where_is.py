"""Say where each rank runs: on which node, and with which local rank.

This is the launcher's work; your programs only read the result.

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

from ddp_workbook.judging import Comparison, Edit, Pattern, SingleProcessCheck, body, edit
from ddp_workbook.judging.equality import is_index

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


def plain(returned: Any, _: list[int]) -> Any:
    """Named tuples as plain ones, which they are equal to."""
    if not isinstance(returned, list | tuple):
        return returned
    return [tuple(place) if isinstance(place, tuple) else place for place in returned]


def is_place(value: Any) -> bool:
    """A tuple of two whole numbers, of any library's kind."""
    return isinstance(value, tuple) and len(value) == 2 and all(map(is_index, value))


def same(actual: Any, expected: Any) -> bool:
    """Whether `actual.index` would find each place of `expected`."""
    return isinstance(actual, list) and all(map(is_place, actual)) and actual == expected


def any_entry(holds: Callable[[Any, list[int]], Any]) -> Pattern:
    """Whether it is so of an entry of the list and `gpus`."""
    return Pattern(
        lambda obs: (
            isinstance(obs.value, list) and any(holds(entry, obs.case) for entry in obs.value)
        )
    )


def by_formula(place: str) -> Edit:
    """The place of each rank by a formula."""
    return body(f"return [{place} for rank in range(sum(gpus))]")


PLACE, NODES, GPUS = "(node, local)", "enumerate(gpus)", "range(count)"
CASES = [
    [2, 4, 5, 1],  # all nodes differ, and the mean is yet another number: most mistakes show here
    *([3, 3], [2, 2, 2], [0, 4, 1, 0], [3, 0, 0, 2], [0, 2], [3], [1, 16]),
    [2, 4, 5, 1],
]
CHECK = SingleProcessCheck(
    cases=CASES,
    make_args=lambda gpus: ([*gpus],),
    random_args=lambda rng: ([rng.randrange(6) for _ in range(rng.randint(1, 6))],),
    observe=plain,
    compare=Comparison(
        "Which processes has the launcher already started when it comes to a node?", equal=same
    ),
    mistakes={
        "The ranks are dealt out to the nodes like cards. When does the launcher move to the next "
        "node?": [
            by_formula("(rank % len(gpus), rank // len(gpus))"),
            edit(
                f"for local in {GPUS}]",
                f"for local in {GPUS}]\n    return sorted(places, key=lambda place: place[1])",
                "return [",
                "places = [",
            ),
        ],
        "This is (local rank, node). Which of the two comes first?": edit(PLACE, "(local, node)"),
        "Nodes, or local ranks, are counted from 1. At which number does PyTorch start?": [
            edit(NODES, "enumerate(gpus, 1)"),
            edit(GPUS, "range(1, count + 1)"),
        ],
        "These are ranks, not local ranks. At which local rank does each node start?": edit(
            "range(count)", "range(sum(gpus[:node]), sum(gpus[:node]) + count)"
        ),
        "This assumes that every node has the same number of GPUs. How many does each have?": [
            by_formula(f"divmod(rank, {divisor} or 1)")
            for divisor in ("gpus[0]", "(sum(gpus) // len(gpus))", "min(gpus)", "max(gpus)", "8")
        ],
        "All ranks are on one node. When does the launcher move to the next?": by_formula(
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
        "Return an entry for each rank. Up to which number are nodes, GPUs and ranks counted?": [
            edit(NODES, "enumerate(gpus[:-1])"),
            edit(f"{GPUS}]", f"{GPUS}][:-1]"),
            edit(GPUS, "range(count - 1)"),
            edit(GPUS, "range(count + 1)"),
        ],
        "An entry is a tuple of two whole numbers, node and local rank. What does the "
        "caller find at index r for rank r?": any_entry(lambda entry, gpus: not is_place(entry)),
        "The entries are right, but their order is not. Where does rank 1 run?": Pattern(
            lambda obs: isinstance(obs.value, list) and sorted(obs.value) == obs.expected
        ),
    },
    unchanged_hint="Which line changes the caller's list?",
    errors={
        "by zero": "A node may have no GPU. What do you divide by, and do you need to divide?",
        "out of range": "How many nodes are there, how many ranks, and which one is counted here?",
        "'list' object cannot be interpreted": "gpus is a list: how many GPUs node 0 has, how many "
        "node 1 has, and so on.",
        "'int' object is not iterable": "gpus[i] is a number. How do you count up to it?",
    },
    on_pass="the place of every rank, on 1 to 4 nodes with 0 to 16 GPUs each, equally many or not",
)
