"""Sets of a cell: one of texts has another order on odd ranks, all else is as with plain sets."""

import copy
import pickle

import pytest

from ddp_workbook.judging.set_order import RankOrderedSet, compile_cell

CELL = """
texts = {"row", "column", "both"}
numbers = {3, 1, 2} | {(0, 1)}
lengths = {len(text) for text in texts}
of_all = [set(texts), texts | {"more"}, texts.union(["more"]), texts - {"row"}, {*texts, "more"}]
empty = set()
def typed(names: set[str] | None) -> bool:
    return isinstance(names, set) and isinstance(numbers, set)
"""


def run(monkeypatch: pytest.MonkeyPatch, rank: int) -> dict:
    """What the cell defines on this rank."""
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setattr(RankOrderedSet, "reverse_on_odd_ranks", True)
    names: dict = {}
    exec(compile_cell(CELL, "cell.py", names), names)
    orders = [names["texts"], *names["of_all"]]
    return names | {"orders": [list(order) for order in orders], "counted": list(names["numbers"])}


def test_the_order_of_texts_is_another_on_each_rank(monkeypatch):
    first, second = run(monkeypatch, 0), run(monkeypatch, 1)
    for order, other_order in zip(first["orders"], second["orders"], strict=True):
        assert order != other_order
        assert sorted(order) == sorted(other_order)


def test_numbers_keep_the_order_that_every_process_gives_them(monkeypatch):
    assert run(monkeypatch, 0)["counted"] == run(monkeypatch, 1)["counted"]


def test_everything_else_is_as_with_a_plain_set(monkeypatch):
    names = run(monkeypatch, 1)
    texts = names["texts"]
    assert texts == {"row", "column", "both"} and names["lengths"] == {3, 6, 4}
    assert type(texts).__name__ == "set" and names["typed"]({"a plain one"})
    assert type(pickle.loads(pickle.dumps(texts))) is set
    assert copy.deepcopy(texts) == texts and repr(names["empty"]) == "set()"
    texts |= {"more"}
    assert list(texts) == list(set.__iter__(texts))[::-1] and "more" in texts
