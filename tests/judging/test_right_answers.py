"""Cells in tests/right_answers/<name>.py: right answers of another kind than the solution."""

import pytest

from ddp_workbook.judging.catalogue import Exercise
from ddp_workbook.judging.judge import examine
from ddp_workbook.judging.verdict import SOLVED
from tests.attempts import attempts_in_a_folder  # noqa: F401 (a fixture)
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tools.set_up import ROOT
from tools.wrong_answers import read

pytestmark = pytest.mark.push("right answers of other kinds")

FILES = sorted((ROOT / "tests" / "right_answers").glob("*.py"))
CELLS = [answer for file in FILES for answer in read(file.read_text("utf-8"), Exercise(file.stem))]


@pytest.mark.parametrize("right", CELLS, ids=lambda right: f"{right.name}-{right.slug}")
def test_a_right_answer_of_another_kind_passes(right):
    verdict = examine(Exercise(right.name), right.cell)
    assert verdict.kind == SOLVED, repr(verdict)
