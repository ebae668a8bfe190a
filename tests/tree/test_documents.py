"""TOOLS.md: its commands and programs run, and print what stands there but for the numbers."""

import os
import re
import subprocess
import sys

import pytest

from tools.set_up import ROOT

TEXT = (ROOT / "TOOLS.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"(?ms)^```console\n\$ (.*?)\n(.*?)^```", TEXT)
PROGRAMS = re.findall(r"(?ms)^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", TEXT)
MY_TRAINING = '''
"""What the example of tests on ranks imports."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gather_metrics(mine):
    dist.init_process_group()
    lists = [None] * dist.get_world_size()
    dist.all_gather_object(lists, mine)
    dist.destroy_process_group()
    return sum(lists, [])


def one_step():
    dist.init_process_group()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(3, 1))
    rows = torch.arange(36.0).view(12, 3).chunk(dist.get_world_size())[dist.get_rank()]
    model(rows).mean().backward()
    dist.destroy_process_group()
    return {name: p.grad for name, p in model.module.named_parameters()}
'''
PERCENT = re.compile(r"\d+% of a step is .*")  # whoever is late, and why, is the machine's


def shape(text: str) -> list[str]:
    """The text without what a run or a machine decides: numbers, and how wide they are."""
    text = PERCENT.sub("N% of a step", text)
    return re.sub(r"[-+]?\d[\d,.]*(e-\d+)?", "N", text).split()


def output_of(line: list[str] | str, folder) -> str:
    """What it prints there, with the programs of this environment in front of others."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    run = subprocess.run(
        line,
        shell=isinstance(line, str),
        cwd=folder,
        env=os.environ | {"PATH": path, "COLUMNS": "96"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.fixture
def folder(tmp_path):
    """An empty one; `src` is the checkout's, so that a path of an example leads there."""
    (tmp_path / "src").symlink_to(ROOT / "src")
    (tmp_path / "my_training.py").write_text(MY_TRAINING)
    return tmp_path


@pytest.mark.push("every tool, as TOOLS.md shows it")
@pytest.mark.parametrize(("command", "output"), CONSOLE, ids=[one[:24] for one, _ in CONSOLE])
def test_a_command_prints_what_the_document_shows(command, output, folder):
    (folder / "my_training.py").unlink()  # a name that an example writes itself
    assert shape(output_of(command, folder)) == shape(output)


@pytest.mark.push("every tool, as TOOLS.md shows it")
@pytest.mark.parametrize(("program", "output"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_runs_and_prints_what_the_document_shows(program, output, folder):
    is_test = "def test_" in program
    (folder / "test_program.py").write_text(program)
    line = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if is_test else []
    printed = output_of([sys.executable, *line, "test_program.py"], folder)
    expected = shape(output)
    assert shape(printed)[-len(expected) :] == expected or not output  # the script's lines first


def test_every_block_is_tried():
    """None has a form that the patterns above do not see, and the README's tools are all shown."""
    assert len(CONSOLE) == TEXT.count("```console") and len(PROGRAMS) == TEXT.count("```python")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tools = set(re.findall(r"(?m)^\.venv/bin/(\S+ [a-z]+) ", readme))
    assert tools == {" ".join(command.split()[:2]) for command, _ in CONSOLE}
