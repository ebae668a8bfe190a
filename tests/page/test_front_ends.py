"""The first page in IPython in a terminal, which prints words where JupyterLab shows HTML.

tests/browser has the front ends that need a browser.
"""

import itertools
import json
import os
import re
import sys
from collections.abc import Iterator

import psutil
import pytest

from benchmarks.traces import alive, wait_until
from ddp_workbook.judging.catalogue import find
from tools import book

pytestmark = pytest.mark.push("other front ends")

pexpect = pytest.importorskip("pexpect")  # IPython brings it along, except on Windows

PAGE = json.loads((book.ROOT / "notebooks/00_start_here.ipynb").read_text(encoding="utf-8"))
CELLS = {cell["id"]: "".join(cell["source"]) for cell in PAGE["cells"]}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b.|\r")
LIMIT = 300  # seconds for one cell, on a busy machine
ADDRESS = re.compile(r"<.* (?:object )?at 0x[0-9a-f]+>|<IPython\.")


class Terminal:
    """IPython in a pseudo-terminal, into which whole cells are pasted."""

    def __init__(self, folder: os.PathLike, home: os.PathLike) -> None:
        env = dict(os.environ, IPYTHONDIR=str(home), TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1")
        line = [sys.executable, "-m", "IPython", "--no-banner", "--colors=nocolor"]
        self.process = pexpect.spawn(
            line[0], line[1:], cwd=folder, env=env, dimensions=(100, 160), encoding="utf-8"
        )
        self.counter = itertools.count(1)
        self.wait()

    def wait(self) -> str:
        """What it prints before its next prompt."""
        prompt = re.compile(rf"In \[(?:\x1b\[[0-9;]*m)*{next(self.counter)}(?:\x1b\[[0-9;]*m)*\]:")
        self.process.expect(prompt, timeout=LIMIT)
        return ESCAPES.sub("", self.process.before)

    def paste(self, cell: str) -> None:
        """Paste the text as a terminal does, in brackets; Esc and Enter run it wherever it ends."""
        self.process.send(f"\x1b[200~{cell.rstrip()}\x1b[201~")
        self.process.send("\x1b\r")

    def run(self, cell: str) -> str:
        """Paste the cell and wait; what it shows, without what was typed."""
        self.paste(cell)
        shown = self.wait().rstrip()
        return shown[shown.rindex(cell.rstrip().splitlines()[-1]) :]

    def below(self) -> set[int]:
        """All processes that IPython has started, and those that these have."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return {child.pid for child in children}


@pytest.fixture(scope="module")
def terminal(tmp_path_factory) -> Iterator[Terminal]:
    """The page's first cells have run in it."""
    terminal = Terminal(tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("ipython"))
    try:
        terminal.run(CELLS["imports"])
        assert "0 of 1 solved" in terminal.run(CELLS["progress"])
        yield terminal
        pids = terminal.below()
        terminal.process.send("exit\r")
        terminal.process.expect(pexpect.EOF, timeout=LIMIT)
        assert wait_until(lambda: not alive(pids))
    finally:
        terminal.process.close(force=True)


def test_pictures_tables_and_values_of_ranks_are_words(terminal):
    """Of a picture its alt text; of tables and ranks their lines; nowhere an object's address."""
    picture = terminal.run(CELLS["sum-picture"])
    ranks = terminal.run(CELLS["greeting"])
    table = terminal.run(CELLS["machine"])
    terminal.run("from ddp_workbook import stepper\nfrom manyranks.figures import Picture")
    slider = terminal.run(
        "stepper([demos.first_sum.sum_plot(launch(demos.first_sum.run_sum, ranks=4))])"
    )
    assert "Afterwards the ranks have 10, 10, 10, 10." in picture
    assert "I am rank 3 of 4" in ranks and "rank 3: 30" in ranks
    assert "what this means for you" in table and "backends" in table
    assert "Afterwards the ranks have 10, 10, 10, 10." in slider
    assert not ADDRESS.search(picture + ranks + table + slider)


def test_an_exercise_wrongly_and_then_rightly(terminal):
    """The verdict, a hint that is asked for, and what is solved."""
    name = "mean_over_ranks"
    assert "not attempted yet" in terminal.run(CELLS["ex-mean-over-ranks"])
    right = f"%%exercise {name}\n{find(name).solution}"
    wrong = right.replace(" / dist.get_world_size()", "")
    assert wrong != right
    output = terminal.run(wrong)
    assert f"Not yet: {name} at 4 ranks" in output and "This is the sum" in output
    assert find(name).hints[0] in terminal.run(f'hint("{name}")')
    assert f"{name} is solved" in terminal.run(right)
    assert "1 of 1 solved" in terminal.run("progress('start_here')")


HANG = """%%ranks 2 --timeout 900
import time
if rank == 0:
    dist.all_reduce(torch.ones(1))
print("rank", rank, "does not come", flush=True)
time.sleep(900)
"""


def test_ctrl_c_reports_where_each_rank_is_and_leaves_none(terminal):
    before = terminal.below()
    terminal.paste(HANG)
    terminal.process.expect("rank 1 does not come\r?\n", timeout=LIMIT)
    terminal.process.sendintr()
    output = terminal.wait()
    assert "Interrupted." in output and re.search(r"rank 1 +is at +cell:", output)
    assert wait_until(lambda: terminal.below() <= before)
