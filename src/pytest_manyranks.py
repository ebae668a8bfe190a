"""The pytest plugin of manyranks: the fixture `ranks`, which needs no import.

It stands outside the package, because pytest imports its plugins in every run, also in projects
that start no rank: `import manyranks` sets OMP_WAIT_POLICY, and manyranks.testing imports torch.
Both wait for the first test that asks for `ranks`.
"""

from collections.abc import Callable

import pytest


@pytest.fixture
def ranks() -> Callable[..., Callable[..., list]]:
    """`ranks(4)(worker, *args)`: the results of four ranks, in order; see `manyranks.testing`."""
    from manyranks.testing import on_ranks

    return on_ranks
