"""`%%ranks` in a real kernel: a cell as a file, its value on every rank, its errors in words."""

import re
from pathlib import Path

import pytest

from tests.cells import run

pytestmark = pytest.mark.memory  # a kernel and its ranks

# What a reader pastes first: a whole script, as tutorials print it.
PASTED = """MAGIC
import os
import torch
import torch.distributed as dist

def main():
    dist.init_process_group("gloo")
    x = torch.ones(1)
    dist.all_reduce(x)
    print("sum", x.item(), __name__)
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
SPAWNS = """MAGIC
import torch.multiprocessing as mp

def train(rank, name):
    print("trains", name, rank)

if __name__ == "__main__":
    mp.spawn(train, args=("net",), nprocs=2)
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A kernel's answers to a page of cells, by name: one kernel for all tests below."""
    cells = {
        "sum": "%%ranks 4\nx = torch.tensor([rank + 1.0])\ndist.all_reduce(x)\nx.item()",
        "print": "%%ranks 2\nprint('hello from', rank, 'of', world_size)",
        "none": "%%ranks 2\nx = 1",
        "semicolon": "%%ranks 2\n41 + 1;",
        "variable": "%%ranks 2\nkept = rank",
        "forgotten": "%%ranks 2\nkept",
        "bare": "%%ranks 2 --bare\ndist.is_initialized()",
        "line": "%%ranks 2\n\nif rank == 1:\n    raise ValueError('line four')",
        "syntax": "%%ranks 2\nx = (\n",
        "hang": "%%ranks 2 --timeout 1\nif rank == 0:\n    dist.barrier()\n"
        "else:\n    import time; time.sleep(60)",
        "below a comment": "\n# mine\n%%ranks 2\nrank",
        "comment in the cell": "%%ranks 2\n# mine\nrank",
        "zero": "%%ranks 0\n1",
        "number": "%%ranks four\n1",
        "missing": "%%ranks\n1",
        "class": "%%ranks 2\nclass Digit:\n    pass\nboxes = [None, None]\n"
        "dist.all_gather_object(boxes, Digit())\ntype(boxes[1 - rank]).__name__",
        "html": "%%ranks 1\nimport pandas as pd\npd.DataFrame({'loss': [0.5]})",
        "pasted": PASTED.replace("MAGIC", "%%ranks 2 --bare"),
        "twice": PASTED.replace("MAGIC", "%%ranks 2"),
        "asks for it": "%%ranks 2\nif not dist.is_initialized():\n"
        "    dist.init_process_group('gloo')\ndist.is_initialized()",
        "makes another": "%%ranks 2\ndist.destroy_process_group()\n"
        "dist.init_process_group('gloo')\ndist.get_world_size()",
        "no dashes": "%%ranks 2 --bare --epochs 3\n1",
        "guards": "%%ranks 1\n" + 2 * "if __name__ == '__main__':\n    print('guarded')\n",
        "words": "%%ranks 1 --timeout 30 -- --lr 0.5 'a b'\nimport sys\nsys.argv[1:]",
        "no words": "%%ranks 2\nimport argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', required=True)\nparser.parse_args()",
        "open quote": "%%ranks 2 -- 'open\n1",
        "exit": "%%ranks 2\nimport sys\nprint('before')\nsys.exit()\nprint('after')",
        "exit in words": "%%ranks 2\nimport sys\nsys.exit('no data here')",
        "os._exit": "%%ranks 1\nimport os\nprint('before', flush=True)\nos._exit(0)",
        "shell": "%%ranks 2\nx = 1\nfiles = !ls\n!pwd",
        "magic": "%%ranks 2\n%matplotlib inline\nx = 1",
        "help": "%%ranks 2\nprint?",
        "spawn": SPAWNS.replace("MAGIC", "%%ranks 2 --bare"),
        "spawn alone": SPAWNS.replace("MAGIC", "%%ranks 1 --bare"),
        "network": "%%ranks 2 --network 100 kbit/s, 50 ms\nimport time\n"
        "begun = time.perf_counter()\ndist.barrier()\ntime.perf_counter() - begun >= 0.1",
        "no network": "%%ranks 2 --network fast\n1",
        "fine": "1 + 1",
    }
    folder = tmp_path_factory.mktemp("page")
    return dict(zip(cells, run(folder, *cells.values()), strict=True)) | {"folder": folder}


@pytest.mark.long
def test_the_last_value_of_each_rank_is_shown_in_rank_order(page):
    assert page["sum"].endswith("\n".join(f"rank {rank}: 10.0" for rank in range(4)))


def test_printed_lines_carry_their_rank(page):
    assert sorted(page["print"].split("\n")[:2]) == [
        f"[rank {r}] hello from {r} of 2" for r in range(2)
    ]


def test_nothing_is_shown_without_a_last_expression(page):
    assert page["none"] == page["semicolon"] == ""


def test_no_state_is_kept_and_the_first_use_says_so(page):
    assert "fresh processes" in page["sum"] and "fresh processes" not in page["print"]
    assert "NameError: name 'kept' is not defined" in page["forgotten"]
    assert "nothing from other cells" in page["forgotten"]


def test_bare_makes_no_group(page):
    assert page["bare"].splitlines() == ["rank 0: False", "rank 1: False"]


def test_a_cell_runs_on_a_network(page):
    """A barrier goes twice around."""
    assert page["network"].splitlines() == ["rank 0: True", "rank 1: True"]
    assert "'fast' is no link" in page["no network"]


def test_an_error_shows_the_line_as_the_page_numbers_it(page):
    assert "Rank 1 (of 2) failed: ValueError: line four" in page["line"]
    assert re.search(r"line 4\b", page["line"]) and "raise ValueError('line four')" in page["line"]


def test_bad_syntax_is_said_once_before_anything_starts(page):
    assert page["syntax"].startswith("LaunchRefused: line 2 of this cell is not valid Python.")
    assert "was never closed" in page["syntax"] and "Traceback" not in page["syntax"]


def test_a_hang_names_lines_and_the_missed_collective(page):
    assert re.search(r"rank 0 +waits in barrier .*3\b.*dist\.barrier\(\)", page["hang"])
    assert "entered by rank 0, never by rank 1" in " ".join(page["hang"].split())


def test_a_magic_below_a_comment_is_told_where_it_belongs(page):
    assert "%%ranks must be the first line of its cell" in page["below a comment"]
    assert "must be the first" not in page["comment in the cell"]


def test_bad_arguments_are_refused_in_words(page):
    assert "ranks=0" in page["zero"] and "whole number" in page["zero"]
    assert "invalid int value: 'four'" in page["number"]
    assert "required: N" in page["missing"]


def test_a_pasted_script_runs_what_stands_under_its_guard(page):
    assert page["pasted"].count("sum 2.0 __main__") == 2
    assert page["guards"].count("guarded") == 2
    assert page["twice"].count("sum 2.0 __main__") == 2
    assert "makes its process group itself (line 7), so %%ranks made none" in page["twice"]
    assert "makes its process group" not in page["pasted"] + page["asks for it"]
    assert page["asks for it"] == "rank 0: True\nrank 1: True"


def test_a_cell_has_a_command_line(page):
    assert page["words"] == "rank 0: ['--lr', '0.5', 'a b']"
    assert "the following arguments are required: --lr" in page["no words"].partition("it said")[2]
    assert "`%%ranks 2 -- --epochs 3`" in page["no words"].partition("look at")[2]
    assert "No closing quotation" in page["open quote"]
    assert "go after `--`: %%ranks 2 -- --epochs 3" in page["no dashes"]


def test_a_cell_may_leave_as_a_script_does(page):
    assert page["exit"].count("before") == 2 and "after" not in page["exit"]
    assert "SystemExit: no data here" in page["exit in words"]
    assert page["os._exit"].strip() == "[rank 0] before"


@pytest.mark.parametrize(
    ("cell", "lines"),
    [
        ("shell", "  line 3   files = !ls\n  line 4   !pwd"),
        ("help", "  line 2   print?"),
        ("magic", "  line 2   %matplotlib inline"),
    ],
)
def test_magics_do_not_work_in_a_rank_and_the_page_says_so(page, cell, lines):
    head = "LaunchRefused: these lines of the cell are for IPython:\n"
    assert page[cell].startswith(f"{head}{lines}\n")
    assert "Put such lines into a cell of their own" in page[cell]


def test_ranks_within_the_ranks_of_a_cell_run_once(page):
    """mp.spawn in two ranks runs its function in them; in a rank alone it starts them."""
    for cell in ("spawn", "spawn alone"):
        assert sorted(re.findall(r"trains net \d", page[cell])) == ["trains net 0", "trains net 1"]


def test_a_cell_may_leave_the_group_and_make_another(page):
    assert page["makes another"] == "rank 0: 2\nrank 1: 2"


def test_a_class_of_the_cell_travels_between_the_ranks(page):
    assert page["class"].splitlines() == ["rank 0: 'Digit'", "rank 1: 'Digit'"]


def test_the_kernel_lives_on_and_the_cells_are_files(page):
    assert page["fine"] == "2"
    files = list((page["folder"] / "work" / "cells").glob("cell_*.py"))
    assert any(file.read_text().startswith("# %%ranks 4\nx = torch") for file in files)


def test_a_read_only_folder_is_no_obstacle(tmp_path, monkeypatch):
    from ddp_workbook.page import cells

    monkeypatch.setattr(cells, "FOLDER", Path("/proc/no-folder-can-be-made-here"))
    saved = cells.save_cell("%%ranks 2", "1 + 1")
    assert Path(saved.path).read_text() == saved.text == "# %%ranks 2\n1 + 1"


def test_rank_values_keep_markup_as_text():
    from ddp_workbook.page.display import RankValues

    values = RankValues(
        [{"text/plain": "<b>"}, None, {"text/plain": "f", "text/html": "<table></table>"}]
    )
    page = values._repr_html_()
    assert "&lt;b&gt;" in page and "<table></table>" in page and page.count("listitem") == 3
    assert repr(values) == "rank 0: <b>\nrank 1: None\nrank 2: f"
