"""`make gpu`: parts in processes of their own, each with a limit; and no GPU, said in words."""

import re
import sys
import time

import psutil
import pytest
import torch

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import measurements, page
from benchmarks.gpu.__main__ import FAILED, OK, SKIPPED, Outcome, Part
from benchmarks.traces import alive, wait_until
from ddp_workbook.experiments.data_parallel.step_times import Size
from ddp_workbook.experiments.gpu_tables import recorded_gpu
from ddp_workbook.page.pages import all_pages
from tests.fresh_checkout import CHECKOUT, TORCH, FreshCheckout, assert_refused
from tools import set_up

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


@pytest.fixture(autouse=True)
def logs(tmp_path, monkeypatch):
    """The test's folder for the logs of its parts."""
    monkeypatch.setattr(command, "LOGS", tmp_path)


def outcomes(*chosen: Part, budget=600.0) -> list[Outcome]:
    """Run these parts."""
    reports = []
    result = command.run_all(chosen, reports.append, budget)
    assert reports == result
    return result


# The parts


def test_there_is_a_part_for_each_measurement_the_tests_and_each_page():
    """In this order; tests are those that have the marker, pages those that there are."""
    names = [part.name for part in command.parts()]
    pages = sorted(path.stem for path in all_pages())
    assert names == [*measurements.MEASUREMENTS, "tests", *pages]
    assert "tests/manyranks/launcher/test_gpu_ranks.py" in command.tests().arguments
    assert "tests/course/samplers/test_samplers.py" not in command.tests().arguments


# Running them


def test_a_part_that_fails_is_reported_and_the_others_go_on():
    """An exception, a crash, a package that is not there."""
    result = outcomes(RAISES, CRASHES, LACKS, WORKS)
    assert [(outcome.name, outcome.state) for outcome in result] == [
        ("raises", FAILED), ("crashes", FAILED), ("lacks", SKIPPED), ("works", OK)
    ]  # fmt: skip
    assert [outcome.reason for outcome in result] == [
        "RuntimeError: no room on the GPU",
        "killed by SIGABRT",
        "not installed here: no_such_module, nor_this",
        "",
    ]


def test_a_part_that_waits_for_ever_is_ended_with_all_that_it_started(tmp_path):
    """Processes in sessions of their own too; the next part has its time."""
    part = Part("hangs", 2, ("-c", HANGS))
    start = time.monotonic()
    hung, fine = outcomes(part, WORKS)
    assert time.monotonic() - start < 40  # 2.2 s seen
    assert (hung.state, fine.state) == (FAILED, OK)
    assert hung.reason == "took more than 2 s, and was ended"
    child = (tmp_path / "hangs.log").read_text()
    assert wait_until(lambda: not alive([int(child)]))


def test_no_part_begins_when_the_budget_is_used_up(monkeypatch):
    """Skipped with the reason; a limit is never longer than what is left."""
    monkeypatch.setattr(command, "MIN_PART_S", 3.0)
    hung, late = outcomes(Part("hangs", 60, ("-c", HANGS)), WORKS, budget=4)
    assert hung.reason == "took more than 4 s, and was ended"
    assert (late.state, late.seconds) == (SKIPPED, 0)
    assert late.reason == "no time left of 4 s; name it in ARGS= to run it alone"


def test_an_interrupt_ends_the_part_and_skips_the_others(tmp_path, monkeypatch):
    """The table still comes."""
    before = psutil.Process().children()  # such as the fork server of other tests
    log = tmp_path / "hangs.log"

    def interrupted(futures):
        assert wait_until(lambda: log.is_file() and log.read_text())
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "wait", interrupted)
    first, second = outcomes(Part("hangs", 60, ("-c", HANGS)), WORKS)
    assert (first.state, first.reason) == (FAILED, "interrupted")
    assert (second.state, second.reason) == (SKIPPED, "interrupted")
    assert [process for process in psutil.Process().children() if process not in before] == []


# What a part's process does


def test_a_measurement_records_what_it_could_and_names_what_failed(tmp_path, monkeypatch, capsys):
    """On a CPU here, through the same function."""
    cpu, sizes = torch.device("cpu"), [Size(32, 1, 4), Size(33, 1, 4)]  # 33: not for 4 heads
    failed = measurements.measure("precision", cpu, tmp_path, sizes=sizes, rounds=1)
    assert failed.startswith("width 33, depth 1, batch 4: ValueError: width ")
    assert set(recorded_gpu("precision", tmp_path)["width"]) == {32}
    assert "Traceback" in capsys.readouterr().out
    assert measurements.measure("precision", cpu, tmp_path / "new", sizes=sizes[:1], rounds=1) == ""
    monkeypatch.setitem(measurements.MEASUREMENTS, "precision", lambda _: {"a": lambda: [1 / 0]})
    failed = measurements.measure("precision", cpu, tmp_path / "none")
    assert failed == "a: ZeroDivisionError: division by zero"
    assert not (tmp_path / "none").exists()


def test_a_page_that_fails_names_its_cells(monkeypatch):
    """It runs in a copy of the folders that it refers to."""
    calls = []
    monkeypatch.setattr(page, "execute", lambda path: calls.append((path, path.is_file())) or path)
    monkeypatch.setattr(page, "errors", lambda path: [] if "00" in path.stem else ["cell a: E"])
    assert page.failures("00_start_here") == []
    assert page.failures("04_samplers") == ["cell a: E"]
    assert all(there for _, there in calls)
    assert not any(path.is_relative_to(CHECKOUT) for path, _ in calls)


# The command


def test_a_line_a_part_and_the_exit_code_counts_all(monkeypatch, capsys):
    """0 only if all ran; the log's last lines stand where a part failed."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(command, "parts", lambda: [WORKS, RAISES, LACKS])
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    assert command.main([]) == 1
    printed = re.sub(r"\d+ s\b", "N s", capsys.readouterr().out)
    assert "works: ok, N s.\n" in printed
    assert "raises: failed, N s. RuntimeError: no room on the GPU\n  first\n" in printed
    assert "lacks: skipped, N s. not installed here: no_such_module, nor_this\n" in printed
    assert printed.endswith("Measurements are in data/gpu.\nfailed: raises\nskipped: lacks\n")
    assert command.main(["works"]) == 0
    assert command.main(["works", "lacks"]) == 1
    with pytest.raises(SystemExit) as ended:
        command.main(["speed"])
    assert ended.value.code == 2
    assert "there is no part 'speed'; there are: works, raises" in capsys.readouterr().err


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
    (newcomer.folder / "benchmarks/gpu").mkdir(parents=True)
    (newcomer.folder / "benchmarks/gpu/__main__.py").write_text(TELLS)
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
