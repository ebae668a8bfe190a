"""Reports fit the width, and break between words."""

import pytest

from manyranks.errors import RankFailed
from manyranks.wrapping import wrap

REPORT = """Rank 1 failed: RuntimeError: the sizes of the tensors differ, and nobody knows why
  Traceback (most recent call last):
    File "train.py", line 5, in worker
      loss = criterion(model(inputs), targets)  # a long line of code that stays whole
  rank 3  waits in barrier     train.py:8  the line of code in which it stands
  look at   Every rank must call the same collectives in the same order, or all wait."""


@pytest.mark.parametrize("width", [40, 55, 70, 80])
def test_lines_end_between_words_and_go_on_below_the_text(width):
    lines = wrap(REPORT, width).split("\n")
    code = "      loss = criterion(model(inputs), targets)  # a long line of code that stays whole"
    assert code in lines
    assert all(len(line) <= width for line in lines if line != code)
    assert " ".join(lines).split() == REPORT.split()
    place = next(n for n, line in enumerate(lines) if line.startswith("  look at   Every"))
    assert all(line.startswith(" " * 12) for line in lines[place + 1 :]) and lines[place + 1 :]


def test_what_fits_stays_as_it_is_and_a_long_word_stays_whole():
    assert wrap(REPORT, 200) == REPORT
    assert wrap("x" * 90, 40) == "x" * 90
    assert wrap("a\n\n  b", 40) == "a\n\n  b"


def test_a_notebook_shows_an_error_within_its_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = RankFailed(REPORT)._render_traceback_()
    assert lines[0] == "RankFailed: Rank 1 failed: RuntimeError: the sizes of the"
    assert str(RankFailed(REPORT)) == REPORT
