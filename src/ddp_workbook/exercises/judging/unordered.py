"""Sets that each rank goes through in an order of its own, where a check switches that on.

The order of a set of texts depends on the hash seed of its process. Ranks under torchrun have one
each; those of a check are forks of one process, where an order that is luck would always agree.
"""

import ast
import builtins
import os
import types
from collections.abc import Iterator
from numbers import Number
from typing import Any

NAME = "__set__"  # under which a cell finds what makes its sets

GONE_THROUGH: list[builtins.set] = []  # in this process: those whose order is luck


class AnySet(type):
    """So that `isinstance(x, set)` means what it says in the reader's cell."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, builtins.set)


class Unordered(builtins.set, metaclass=AnySet):
    """A set; on odd ranks one of texts is gone through backwards. Numbers keep their order."""

    mixed = False  # until a check says `Unordered.mixed = True` in its ranks

    def __iter__(self) -> Iterator:
        order = list(super().__iter__())
        if not self.mixed or all(map(hashes_alike, order)):
            return iter(order)
        GONE_THROUGH.append(self)
        return iter(order[::-1] if int(os.environ["RANK"]) % 2 else order)

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self))}}}" if self else "set()"

    def __reduce__(self) -> tuple:
        return builtins.set, (list(self),)


Unordered.__name__ = Unordered.__qualname__ = "set"


def hashes_alike(value: Any) -> bool:
    """Whether every process computes the same hash of it."""
    if isinstance(value, tuple | frozenset):
        return all(map(hashes_alike, value))
    return isinstance(value, Number)


for operation in ("and", "or", "sub", "xor", "rand", "ror", "rsub", "rxor"):

    def again(self: Unordered, other: Any, method: str = f"__{operation}__") -> Any:
        """What the operation of a plain set gives, unordered again."""
        result = getattr(builtins.set, method)(self, other)
        return result if result is NotImplemented else Unordered(result)

    setattr(Unordered, f"__{operation}__", again)
for operation in ("union", "intersection", "difference", "symmetric_difference", "copy"):

    def again(self: Unordered, *others: Any, method: str = operation) -> Unordered:
        """What the method of a plain set gives, unordered again."""
        return Unordered(getattr(builtins.set, method)(self, *others))

    setattr(Unordered, operation, again)


class Displays(ast.NodeTransformer):
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


def compiled(text: str, path: str, names: dict[str, Any]) -> types.CodeType:
    """The code of a cell whose globals are `names`; its sets are unordered."""
    names |= {"set": Unordered, NAME: Unordered}
    return compile(Displays().visit(ast.parse(text, path)), path, "exec")
