"""Launches that hang, ended as soon as the hang is proven."""

import pytest

from manyranks.errors import RanksHung
from manyranks.launcher.calls import Call
from manyranks.launcher.hang_detection import HangLimits
from manyranks.launcher.launch import run_ranks
from tests.workers import launching


@pytest.fixture(scope="module", autouse=True)
def warm():
    """The fork server's own start counts for no hang."""
    run_ranks(Call(launching.all_reduce), 2, quiet=True)


def hang_of(worker, *args, ranks: int = 2) -> RanksHung:
    """The error of a hang, about a second after it; no time limit that a busy machine can miss."""
    with pytest.raises(RanksHung) as caught:
        run_ranks(Call(worker, args), ranks, hang_limits=HangLimits(), quiet=True)
    return caught.value
