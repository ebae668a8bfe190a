"""`make gpu`: parts in processes of their own, each with a limit; and no GPU, said in words."""

import re
import subprocess
import sys
import time

import psutil
import pytest
import torch
from typer.testing import CliRunner

from benchmarks.traces import alive, wait_until
from ddp_workbook.experiments import one_gpu
from ddp_workbook.experiments.data_parallel.step_times import Size
from tests.fresh_checkout import CHECKOUT, TORCH, FreshCheckout, assert_refused
from tools import book, set_up
from tools.gpu import __main__ as command
from tools.gpu import parts, running, work
from tools.gpu.parts import Part
from tools.gpu.running import FAILED, OK, SKIPPED, Outcome

WORKS = Part("works", 60, ("-c", "print('fine')"))
RAISES = Part("raises", 60, ("-c", "print('first'); raise RuntimeError('no room on the GPU')"))
CRASHES = Part("crashes", 60, ("-c", "import os; os.abort()"))
LACKS = Part("lacks", 60, ("-c", ""), ("pytest", "no_such_module", "nor_this"))
# A kernel is a session of its own, and so are its ranks: killing a process group is not enough.
HANGS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def outcomes(*chosen: Part, tmp_path, budget=600.0) -> list[Outcome]:
    """Run these parts, with logs in the test's folder."""
    reports = []
    result = running.run_all(chosen, reports.append, budget, tmp_path)
    assert reports == result
    return result


# The parts


def test_there_is_a_part_for_each_measurement_the_tests_and_each_page():
    """In this order; tests are those that have the marker, pages those that there are."""
    there = parts.parts()
    names = [part.name for part in there]
    assert names[: len(one_gpu.MEASUREMENTS) + 1] == [*one_gpu.MEASUREMENTS, "tests"]
    pages = names[len(one_gpu.MEASUREMENTS) + 1 :]
    assert pages == sorted(path.stem for path in book.NOTEBOOKS)
    assert len(set(names)) == len(names)
    assert "tests/manyranks/launcher/test_gpu_ranks.py" in parts.tests().arguments
    assert "tests/course/samplers/test_samplers.py" not in parts.tests().arguments


# Running them


def test_a_part_that_fails_is_reported_and_the_others_go_on(tmp_path):
    """An exception, a crash, a package that is not there."""
    result = outcomes(RAISES, CRASHES, LACKS, WORKS, tmp_path=tmp_path)
    assert [(outcome.name, outcome.state) for outcome in result] == [
        ("raises", FAILED), ("crashes", FAILED), ("lacks", SKIPPED), ("works", OK)
    ]  # fmt: skip
    assert [outcome.reason for outcome in result] == [
        "RuntimeError: no room on the GPU",
        "killed by SIGABRT",
        "not installed here: no_such_module, nor_this",
        "",
    ]
    assert running.last_lines("raises", tmp_path)[0] == "first"


def test_a_part_that_waits_for_ever_is_ended_with_all_that_it_started(tmp_path):
    """Processes in sessions of their own too; the next part has its time."""
    part = Part("hangs", 2, ("-c", HANGS))
    start = time.monotonic()
    hung, fine = outcomes(part, WORKS, tmp_path=tmp_path)
    assert time.monotonic() - start < 40  # 2.2 s seen
    assert (hung.state, fine.state) == (FAILED, OK)
    assert hung.reason == "took more than 2 s, and was ended"
    (child,) = running.last_lines("hangs", tmp_path)
    assert wait_until(lambda: not alive([int(child)]))


def test_no_part_begins_when_the_budget_is_used_up(tmp_path, monkeypatch):
    """Skipped with the reason; a limit is never longer than what is left."""
    monkeypatch.setattr(running, "MIN_PART_S", 3.0)
    hung, late = outcomes(Part("hangs", 60, ("-c", HANGS)), WORKS, tmp_path=tmp_path, budget=4)
    assert hung.reason == "took more than 4 s, and was ended"
    assert (late.state, late.seconds) == (SKIPPED, 0)
    assert late.reason == "no time left of 4 s; name it in ARGS= to run it alone"


def test_an_interrupt_ends_the_part_and_skips_the_others(tmp_path, monkeypatch):
    """The table still comes."""
    before = psutil.Process().children()  # such as the fork server of other tests
    popen = subprocess.Popen

    class Interrupted(popen):
        def wait(self, timeout=None):
            if timeout is not None:
                raise KeyboardInterrupt
            return super().wait()

    monkeypatch.setattr(running.subprocess, "Popen", Interrupted)
    first, second = outcomes(Part("hangs", 60, ("-c", HANGS)), WORKS, tmp_path=tmp_path)
    assert (first.state, first.reason) == (FAILED, "interrupted")
    assert (second.state, second.reason) == (SKIPPED, "interrupted")
    assert [process for process in psutil.Process().children() if process not in before] == []


# What a part's process does


def test_a_measurement_records_what_it_could_and_names_what_failed(tmp_path, monkeypatch, capsys):
    """On a CPU here, through the same function."""
    cpu, sizes = torch.device("cpu"), [Size(32, 1, 4), Size(33, 1, 4)]  # 33: not for 4 heads
    failed = work.measure("precision", cpu, tmp_path, sizes=sizes, rounds=1)
    assert failed.startswith("width 33, depth 1, batch 4: ValueError: width ")
    assert set(one_gpu.recorded_gpu("precision", tmp_path)["width"]) == {32}
    assert "Traceback" in capsys.readouterr().out
    assert work.measure("precision", cpu, tmp_path / "new", sizes=sizes[:1], rounds=1) == ""
    monkeypatch.setitem(one_gpu.MEASUREMENTS, "precision", lambda _: {"a": lambda: [1 / 0]} | {})
    assert work.measure("precision", cpu, tmp_path / "none") == (
        "a: ZeroDivisionError: division by zero"
    )
    assert not (tmp_path / "none").exists()


def test_a_page_that_fails_names_its_cells(monkeypatch):
    """It runs in a copy of the folders that it refers to."""
    calls = []
    monkeypatch.setattr(book, "execute", lambda path: calls.append((path, path.is_file())) or path)
    monkeypatch.setattr(book, "errors", lambda path: [] if "00" in path.stem else ["cell a: E"])
    assert work.page("00_start_here") == ""
    with pytest.raises(SystemExit, match="cell a: E"):
        work.main("page", "04_samplers")
    assert all(there for _, there in calls)
    assert not any(path.is_relative_to(CHECKOUT) for path, _ in calls)


# The command


def call(monkeypatch, chosen: list[Part], tmp_path, *arguments: str):
    """Run the command with other parts, as if there were a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(command, "name_of_gpu", lambda: "A GPU, torch 9, CUDA 99")
    monkeypatch.setattr(command, "parts", lambda: chosen)
    monkeypatch.setattr(running.run_all, "__defaults__", (running.BUDGET_S, tmp_path))
    monkeypatch.setattr(running.last_lines, "__defaults__", (tmp_path,))
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    app = command.typer.Typer()
    app.command()(command.main)
    return CliRunner().invoke(app, list(arguments))


def test_the_table_has_a_row_a_part_and_the_exit_code_counts_all(monkeypatch, tmp_path):
    """0 only if all ran; the log's last lines stand where a part failed."""
    result = call(monkeypatch, [WORKS, RAISES, LACKS], tmp_path)
    assert result.exit_code == 1, result.output
    assert "A GPU, torch 9, CUDA 99" in result.output
    assert "raise RuntimeError" in result.output or "first" in result.output
    rows = [line.split("│")[1:5] for line in result.output.splitlines() if line.startswith("│")]
    states = [[cell.strip() for cell in row] for row in rows]
    assert [(name, state) for name, _, state, _ in states] == [
        ("works", OK), ("raises", FAILED), ("lacks", SKIPPED)
    ]  # fmt: skip
    assert "RuntimeError: no room on the GPU" in states[1][3]
    assert call(monkeypatch, [WORKS], tmp_path).exit_code == 0
    assert call(monkeypatch, [WORKS, LACKS], tmp_path).exit_code == 1
    assert call(monkeypatch, [WORKS, LACKS], tmp_path, "works").exit_code == 0
    unknown = call(monkeypatch, [WORKS, LACKS], tmp_path, "speed")
    assert unknown.exit_code == 2
    assert "'speed'" in unknown.output and "works, lacks" in unknown.output


# Without a GPU, without a network


def test_without_a_gpu_one_sentence_and_nothing_else(monkeypatch, capsys):
    """Exit code 1, from the set-up before it makes anything, and from the command itself."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"^make gpu measures an NVIDIA GPU, but torch "):
        command.main()
    monkeypatch.setattr(set_up, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(set_up, "sees_gpu", lambda python: False)
    monkeypatch.setattr(set_up, "ensure", lambda *_: 1 / 0)
    with pytest.raises(SystemExit) as ended:
        set_up.main(["gpu"])
    assert ended.value.code == "make gpu measures an NVIDIA GPU, but this machine shows none."
    assert capsys.readouterr() == ("", "")


@pytest.mark.push("the GPU's command")
def test_a_gpu_that_cannot_be_used_is_said_in_one_line():
    """A driver that is too old, or a GPU that another process has to itself."""
    with pytest.raises(SystemExit, match=r"sees an NVIDIA GPU but cannot use it: \w+"):
        command.name_of_gpu()  # there is none here


SITE = """

class cuda:
    def is_available():
        return True
"""
TELLS = "import json, os, sys\nprint(json.dumps([sys.executable, sys.path, sys.argv[1:]]))\n"


@pytest.fixture
def site(tmp_path) -> FreshCheckout:
    """A newcomer at a site: its module holds a torch that sees a GPU, and no index is in reach."""
    newcomer = FreshCheckout(tmp_path)
    (tmp_path / "module/torch").mkdir(parents=True)
    text = TORCH.format(version="2.11.0+cu130", cuda="13.0") + SITE
    (tmp_path / "module/torch/__init__.py").write_text(text)
    (newcomer.folder / "tools/gpu/__main__.py").write_text(TELLS)
    base = getattr(sys, "_base_executable", sys.executable)
    newcomer.variables |= {"PYTHON": base, "PYTHONPATH": str(tmp_path / "module")}
    return newcomer


@pytest.fixture
def packages(tmp_path):
    """The packages beside torch that `make gpu` starts with, empty."""
    for name in set_up.OF_GPU:
        (tmp_path / "module" / f"{name}.py").touch()


@pytest.mark.push("the GPU's command")
def test_without_a_network_the_site_s_python_runs_what_it_can(site, packages):
    """Says in words what could not be installed, and what runs the parts."""
    result = site.make("gpu", "ARGS=memory tests", PIP_FIND_LINKS="")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "uv could not be installed" in result.stderr
    assert "has torch 2.11.0+cu130, with CUDA 13.0: as with TORCH=site" in result.stdout
    *_, words, message = result.stdout.splitlines()
    assert words.startswith("Without .venv: ") and words.endswith("that need nothing else.")
    assert '["memory", "tests"]' in message
    assert str(site.folder / "src") in message and "module" in message
    assert f'"{site.venv}/bin/python"' not in message


def test_what_is_missing_beside_torch_is_named(monkeypatch):
    """No traceback of an import."""
    monkeypatch.setattr(set_up, "OF_GPU", ("json", "no_such_module", "nor_this"))
    with pytest.raises(SystemExit, match="has no no_such_module, nor_this, without which make gpu"):
        set_up.with_site_alone([])


@pytest.mark.release("whole set-ups of an environment")
def test_with_a_network_the_environment_is_made_around_the_site_s_torch(site):
    """As `make setup TORCH=site` does; asked for another build, nothing falls back."""
    project = site.folder / "pyproject.toml"
    bare = re.sub(r"(?ms)^dev = \[\n.*?^\]", "dev = []", project.read_text())
    project.write_text(bare)
    result = site.make("gpu")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f'"{site.venv}/bin/python"' in result.stdout
    assert not list(site.venv.glob("lib/*/site-packages/torch"))
    other = site.make("gpu", "TORCH=cpu", PIP_FIND_LINKS="")
    assert_refused(other, "could not be installed")
    assert "Without .venv" not in other.stdout
