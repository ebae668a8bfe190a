"""Parsing while other code of the process parses, too."""

import ast
import gc

import pytest

from manyranks.diagnostics.parsing import parse_source

TEXT = "\n".join(
    f"def f{i}(a, b=(1, [2, 3])):\n    return [a + b for _ in range({i})]" for i in range(99)
)


class Cycle:
    """Parses when the garbage collector finds it."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        ast.parse("x = f(1)[2]")


@pytest.fixture
def busy_collector():
    """The garbage collector runs every few objects."""
    before = gc.get_threshold()
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)


def test_a_destructor_that_parses_does_not_disturb_a_parse(busy_collector):
    """In CPython 3.11, `ast.parse` alone raises SystemError in most of these rounds."""
    for _ in range(50):
        for _ in range(5):
            Cycle()
        assert len(parse_source(TEXT).body) == 99


def test_other_errors_are_those_of_the_parser():
    with pytest.raises(SyntaxError, match="invalid syntax"):
        parse_source("x =", "here.py")
