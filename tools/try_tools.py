"""Try every tool once, with another environment's Python:  python -m tools.try_tools PYTHON

In an empty folder and without this checkout, as somebody who has only installed the wheel: the
commands, `launch`, `record_collectives`, an ordered network, the fixture `ranks`, and what the
course says where it is not. PYTHON needs pytest, too, and must lack the extra `lab`. It ends at the
first thing that is not as it should be.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.release import version

MODULE = """
import torch
import torch.distributed as dist


def total(mine):
    dist.init_process_group("gloo")
    number = torch.tensor(float(mine + dist.get_rank()))
    dist.all_reduce(number)
    return number.item()
"""
PROGRAM = """
import sys

from manyranks import launch, record_collectives, timeline
from my_module import total

print(launch(total, 10, ranks=4), record_collectives(total, 10, ranks=2)["op"].tolist())
steps = timeline("my_training/train.py", "--epochs", "1", ranks=2, network="1 Gbit/s, 20 µs")
print(len(steps.parts["exposed"]), "steps,", steps.bars().alt[:20])
steps.save("steps.json")
assert not {"ddp_workbook", "IPython", "ipywidgets"} & set(sys.modules)
try:
    from ddp_workbook import play
except ImportError as error:
    assert str(error).startswith("ddp_workbook.play needs ipywidgets, which is not installed")
else:
    raise AssertionError("ipywidgets is here, which only the course needs")
"""
TESTS = """
import pytest
from manyranks.testing import equals_one_process
from my_module import total


def test_without_an_import(ranks):
    assert ranks(3)(total, 1) == [6.0] * 3


def test_the_ranks_differ_from_one_process():
    with pytest.raises(AssertionError, match="rank 0 of 2, against one process"):
        equals_one_process(total, 1, ranks=(2,))
"""
SHORT = ("--", "--epochs", "1")
TOOLS = (  # program, words, and words of what it prints
    ("manyranks", ["--version"], f"ddp-workbook {version()}, in "),
    ("ddp-workbook", ["new", "my_training"], "my_training/task.py"),
    ("manyranks", ["doctor", "my_training/train.py", *SHORT], "steps were seen"),
    ("manyranks", ["doctor", "--explain", "same-rows"], "same-rows"),
    ("manyranks", ["profile", "my_training/train.py", *SHORT], "of a step is exposed"),
    ("manyranks", ["plan", "--parameters", "70B", "--gpus", "64", "--memory", "80GB"], "Fits: "),
    ("python", ["my_program.py"], "[46.0, 46.0, 46.0, 46.0] ['all_reduce', 'all_reduce']"),
    ("python", ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"], "2 passed"),
)
OF_THE_COURSE = (  # commands that need a checkout
    *("check", "solve --to x", "grade", "update", "reset --page 02", "time"),
    *("wheels --to x", "room --folder x"),
)
SENTENCE = "This command is for the course, which is used in a checkout of the workbook, and "


def call(program: Path, words: list[str], folder: Path) -> subprocess.CompletedProcess:
    """Run it there, without this checkout on Python's path."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["PATH"] = os.pathsep.join([str(program.parent), env["PATH"]])
    line = [str(program), *words]
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


def try_all(python: Path) -> None:
    """Run them all; SystemExit with all that was printed if one is not as it should be."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in (("my_module", MODULE), ("my_program", PROGRAM), ("test_mine", TESTS)):
            (folder / f"{file}.py").write_text(text, encoding="utf-8")
        for program, words, expected in TOOLS:
            run = call(python.with_name(program), words, folder)
            if run.returncode or expected not in run.stdout:
                sys.exit(f"{program} {' '.join(words)}: {run.returncode}\n{run.stdout}{run.stderr}")
            print(f"{program} {' '.join(words)}", flush=True)
        for line in OF_THE_COURSE:
            run = call(python.with_name("ddp-workbook"), line.split(), folder)
            if run.returncode != 2 or not run.stderr.startswith(SENTENCE) or run.stdout:
                sys.exit(f"ddp-workbook {line}: {run.returncode}\n{run.stdout}{run.stderr}")
            print(f"ddp-workbook {line}: one sentence", flush=True)


if __name__ == "__main__":
    try_all(Path(sys.argv[1]).absolute())
