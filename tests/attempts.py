"""Attempts at the smallest exercise, and how a test reads their verdicts."""

import math
from textwrap import indent

import pytest

from ddp_workbook.judging import engine
from ddp_workbook.judging.verdict import Verdict

IMPORTS = "import torch\nimport torch.distributed as dist\n\n\n"
DEF = "def mean_over_ranks(value):"  # line 6 of the page, the body begins on line 7
RIGHT = """total = torch.tensor(value)
dist.all_reduce(total)
return total.item() / dist.get_world_size()
"""


def cell(body: str, head: str = DEF, before: str = "") -> str:
    """A cell whose function has this body; `before` stands between imports and function."""
    return f"{IMPORTS}{before}{head}\n{indent(body.strip(chr(10)), '    ')}\n"


def as_text(verdict: Verdict) -> str:
    """The verdict without line breaks, because a message may be wrapped."""
    return " ".join(repr(verdict).split())


@pytest.fixture(autouse=True)
def attempts_in_a_folder(tmp_path, monkeypatch):
    """Attempts are saved below a folder of the test's own; no search for words is given up."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "MAX_SEARCH_S", math.inf)
