"""Sets whose order differs between ranks, if a check switches that on.

The order of a set of strings depends on the hash seed of the process. Under torchrun each rank has
its own; the ranks of a check are forks of one process, in which a random order would always agree.
"""

import ast
import builtins
import os
import types
from collections.abc import Iterator
from numbers import Number
from typing import Any

from manyranks.diagnostics.parsing import parse_source

NAME = "__set__"  # the name of the function that makes a cell's sets


class SetType(type):
    """Makes `isinstance(x, set)` work as usual in the reader's cell."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, builtins.set)


class RankOrderedSet(builtins.set, metaclass=SetType):
    """A set; on odd ranks, a set of strings is iterated backwards. Numbers keep their order.

    A set of tensors is in the order of their addresses, which may agree by luck. Here it is in the
    order of their sizes, also backwards on odd ranks, so that no verdict depends on luck.
    """

    reverse_on_odd_ranks = False  # of strings, until a check sets it in its ranks
    random_orders = 0  # how often this process has used an order that another would not have

    def __iter__(self) -> Iterator:
        order = list(super().__iter__())
        if all(map(has_stable_hash, order)):
            return iter(order)
        RankOrderedSet.random_orders += 1
        sizes = [getattr(element, "nbytes", 0) for element in order]
        if any(sizes):
            order = [
                element
                for _, element in sorted(zip(sizes, order, strict=True), key=lambda pair: -pair[0])
            ]
        backwards = (self.reverse_on_odd_ranks or any(sizes)) and int(os.environ["RANK"]) % 2
        return iter(order[::-1] if backwards else order)

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self))}}}" if self else "set()"

    def __reduce__(self) -> tuple:
        return builtins.set, (list(self),)


RankOrderedSet.__name__ = RankOrderedSet.__qualname__ = "set"


def has_stable_hash(value: Any) -> bool:
    """Whether every process computes the same hash of a value."""
    if isinstance(value, tuple | frozenset):
        return all(map(has_stable_hash, value))
    return isinstance(value, Number)


OPERATORS = [f"__{name}__" for name in ["and", "or", "sub", "xor", "rand", "ror", "rsub", "rxor"]]
for name in (*OPERATORS, "union", "intersection", "difference", "symmetric_difference", "copy"):

    def set_method(self: RankOrderedSet, *others: Any, method: str = name) -> Any:
        """The result of a plain set's method, as a RankOrderedSet."""
        result = getattr(builtins.set, method)(self, *others)
        return result if result is NotImplemented else RankOrderedSet(result)

    setattr(RankOrderedSet, name, set_method)


class SetTransformer(ast.NodeTransformer):
    """`{a, b}` and `{a for a in b}` as calls of NAME."""

    def visit_Set(self, node: ast.Set) -> ast.AST:
        """A call with a tuple of the elements."""
        self.generic_visit(node)
        return self.call(node, ast.Tuple(node.elts, ast.Load()))

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        """A call with a list of them."""
        self.generic_visit(node)
        return self.call(node, ast.ListComp(node.elt, node.generators))

    def call(self, node: ast.expr, elements: ast.expr) -> ast.AST:
        """The call, in the place of `node`."""
        call = ast.Call(ast.Name(NAME, ast.Load()), [elements], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))


def compile_cell(text: str, path: str, names: dict[str, Any]) -> types.CodeType:
    """Compile a cell whose globals are `names`; its sets are RankOrderedSets."""
    names |= {"set": RankOrderedSet, NAME: RankOrderedSet}
    return compile(SetTransformer().visit(parse_source(text, path)), path, "exec")
