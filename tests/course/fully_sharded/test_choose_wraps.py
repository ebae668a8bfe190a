"""The greedy solution of choose_wraps takes as few units as any way to cut the blocks."""

from itertools import product

import pytest
import torch

from ddp_workbook.exercises.fully_sharded.choose_wraps import CASES, choose_wraps

pytestmark = pytest.mark.push("claims of further pages")


def ways_to_cut(number: int) -> list[list[list[int]]]:
    """All ways to cut so many blocks into units of neighbours."""
    if not number:
        return [[]]
    found = []
    for cuts in product([False, True], repeat=number - 1):
        units = [[0]]
        for block, cut in enumerate(cuts, start=1):
            if cut:
                units.append([])
            units[-1].append(block)
        found.append(units)
    return found


@pytest.mark.parametrize("number", range(9))
def test_no_way_to_cut_has_fewer_units(number):
    """Of all 2 ** (number - 1) ways, on sizes with zeros, equal ones, and limits that are met."""
    ways, generator = ways_to_cut(number), torch.Generator().manual_seed(number)
    for most in (2, 5, 40) * 10:
        sizes = torch.randint(0, most + 1, (number,), generator=generator).tolist()
        limit = max(sizes, default=0) + int(torch.randint(0, most, (), generator=generator))
        allowed = [w for w in ways if all(sum(sizes[b] for b in unit) <= limit for unit in w)]
        least = min(map(len, allowed))
        units = choose_wraps(sizes, limit)
        assert units in allowed and len(units) == least, (sizes, limit)


def test_sums_of_the_cases_are_exact():
    """Fractions are quarters: no answer is wrong because it adds in another order."""
    for case in CASES:
        assert all(size * 4 == int(size * 4) for size in (*case.sizes, case.limit))
