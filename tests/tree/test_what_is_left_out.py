"""The end of a test run: what was not run is said in words, and in CI nothing may skip."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from manyranks.launcher import limits
from tests import clusters, conftest, levels
from tools import set_up
from tools.set_up import ROOT

PASSES = "def test_passes():\n    pass\n"
EXPECTED_FAILURE = (
    "import pytest\n\n\n@pytest.mark.xfail(reason='later')\ndef test_later():\n    {}\n"
)
SKIPPING = {
    "test_skips.py": "import pytest\n\n\ndef test_it():\n    pytest.skip('no such device')\n",
    "test_expected.py": EXPECTED_FAILURE.format("assert 0"),
    "test_whole_file.py": "import pytest\n\npytest.importorskip('no_such_module_at_all')\n",
}
UNEXPECTED_PASS = {"test_unexpected.py": EXPECTED_FAILURE.format("pass")}
LEFT_OUT = {
    "test_marked.py": "import pytest\n\n\n@pytest.mark.gpu\ndef test_on_gpus():\n    assert 0\n"
    "\n\n@pytest.mark.gpu1\ndef test_on_a_gpu():\n    assert 0\n"
    "\n\n@pytest.mark.release('slow rows')\ndef test_slow():\n    pass\n"
    "\n\n@pytest.mark.push('further pages')\ndef test_further():\n    pass\n"
}
WHOLE_FILE = {  # which is not imported where it is left out
    "test_browser.py": 'import pytest\n\npytestmark = pytest.mark.push("the browser")\n\n\n'
    "def test_page():\n    pass\n\n\nprint('imported')\n"
}
BUSY = """
import os
import pytest
import subprocess
import sys

def spin(seconds):
    code = f"import time; any(time.process_time() > {seconds} for _ in iter(int, 1))"
    subprocess.run([sys.executable, "-c", code], check=True)

def test_too_long():
    spin(0.8)

@pytest.mark.long
def test_known_to_be_long():
    spin(0.8)

def test_short():
    spin(0.05)
"""
INTERRUPT = """
import os
import pytest
import signal
import time

def test_it():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
"""
IN_BROWSER = {"test_page.py": "import pytest\n\n\n@pytest.mark.browser\ndef test_it():\n    pass\n"}
IN_A_LAB = "import pytest\n\n\n@pytest.mark.cluster\n@pytest.mark.parametrize('i', range({}))\n"
IN_A_LAB += "def test_in_a_lab(i):\n    assert 0\n"
ONLINE = {"test_site.py": "import pytest\n\n\n@pytest.mark.network\ndef test_it():\n    assert 0\n"}
NO_GPU = "class cuda:\n    def is_available():\n        return False\n"  # in place of torch
TWO_WORKERS = ["-p", "xdist", "-n", "2", "--dist", "loadfile"]
# `make test` itself runs with several processes.
ALONE = pytest.param([], id="alone", marks=pytest.mark.push("other ways to start pytest"))
each_way = pytest.mark.parametrize("options", [ALONE, pytest.param(TWO_WORKERS, id="two")])


@pytest.fixture
def run(tmp_path):
    """Call with the texts of test files; gives the finished pytest run, with this conftest."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "tests").mkdir()
    text = (ROOT / "tests" / "levels.py").read_text()
    (tmp_path / "tests" / "levels.py").write_text(text.replace("SECONDS = 5\n", "SECONDS = 0.3\n"))
    markers = [*conftest.LACKS, "browser", "push", "release", "long"]
    (tmp_path / "pytest.ini").write_text("\n    ".join(["[pytest]\nmarkers =", *markers]))
    (tmp_path / "torch.py").write_text(NO_GPU)
    (tmp_path / "test_passes.py").write_text(PASSES)

    def run(texts, no_skips=False, path=os.environ["PATH"], options=(), background=False):
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        env = dict(os.environ, PATH=path, PYTHONPATH=str(tmp_path))
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # those that are not needed take a second
        env["WORKBOOK_NO_SKIPS"] = "1" if no_skips else ""
        command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider"]
        command += options
        if background:
            command = ["sh", "-c", f"{shlex.join(command)} & wait $!"]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    return run


@each_way
def test_nothing_may_skip_in_ci(run, options):
    """Skips, expected failures and unexpected passes pass on a laptop and fail in CI, by name."""
    lenient = run(SKIPPING | UNEXPECTED_PASS, options=options)
    assert lenient.returncode == 0, lenient.stdout
    go_on = "--continue-on-collection-errors"
    strict = run({}, no_skips=True, options=[*options, go_on])
    assert strict.returncode != 0
    for name in SKIPPING | UNEXPECTED_PASS:
        message = [line for line in strict.stdout.splitlines() if f"{name}" in line]
        assert any("nothing may skip here" in line for line in message), strict.stdout
    assert "1 passed" in strict.stdout


@pytest.mark.long
@each_way
def test_what_is_left_out_is_counted_in_words(run, options):
    """Without a GPU, by name; for time, by kind. Neither is a failure where nothing may skip.

    `--push` and `--all` run what is left out for time; what was not asked for is not mentioned.
    """
    result = run(LEFT_OUT | WHOLE_FILE, no_skips=True, options=options)
    assert result.returncode == 0, result.stdout
    assert "1 test needs two GPUs and was not run here; `make test TORCH=cuda`" in result.stdout
    assert (
        "  test_marked.py::test_on_gpus\n1 test needs a GPU and was not run here" in result.stdout
    )
    assert "  test_marked.py::test_on_a_gpu\n" in result.stdout
    kinds = "further pages, the browser"
    assert f"`make test-push` runs 1 test and 1 file of tests more: {kinds}.\n" in result.stdout
    assert "`make test-all` runs 1 test more: slow rows.\n" in result.stdout
    assert "1 passed" in result.stdout and "imported" not in result.stdout
    push = run({}, no_skips=True, options=[*options, "--push"])
    assert "2 passed" in push.stdout and "`make test-push`" not in push.stdout
    everything = run({}, no_skips=True, options=[*options, "--all"])
    assert "4 passed" in everything.stdout
    assert "left out" not in everything.stdout
    named = run({}, options=[*options, "test_browser.py", "test_marked.py"])
    assert "2 passed" in named.stdout
    chosen = run({}, options=[*options, "-k", "passes"])
    assert chosen.returncode == 0, chosen.stdout
    assert "left out" not in chosen.stdout


@pytest.mark.parametrize(
    ("cores", "gigabytes", "keyword", "args", "processes"),
    [
        (2, 24, "", ["tests"], 3),
        (2, 24, "samplers", ["tests"], 2),
        (1, 2, "", ["tests"], 0),
        (8, 6, "", ["tests"], 4),
        (1, 0.5, "", ["tests"], 0),
        (2, 24, "", ["test_a.py", "test_b.py::test_it"], 2),
        (2, 24, "", ["test_a.py"], 0),
        (2, 24, "", ["test_a.py", "tests/page"], 3),
        (2, 24, "", ["tests/course/test_notebooks.py"], 3),  # page by page
    ],
)
def test_as_many_processes_as_cores_and_memory_allow(
    monkeypatch, pytestconfig, cores, gigabytes, keyword, args, processes
):
    monkeypatch.setattr(limits, "usable_cores", lambda: cores)
    monkeypatch.setattr(limits, "free_memory", lambda: int(gigabytes * 1e9))
    monkeypatch.setattr(pytestconfig.option, "keyword", keyword)
    monkeypatch.setattr(pytestconfig, "args", args)
    assert levels.pytest_xdist_auto_num_workers(pytestconfig) == processes


@pytest.mark.long
def test_a_test_that_takes_more_than_its_share_fails_where_nothing_may_skip(run):
    """Processes that it starts count; on a laptop nothing of it is said."""
    lenient = run({"test_busy.py": BUSY})
    assert lenient.returncode == 0, lenient.stdout
    strict = run({}, no_skips=True)
    assert re.findall(r"FAILED test_busy.py::(\w+)", strict.stdout) == ["test_too_long"]
    assert re.search(r"took \d\.\d processor seconds.* move it", strict.stdout)
    assert "3 passed" in strict.stdout


def test_a_process_that_is_killed_ends_the_run(run):
    """As where memory is short. It is named, with the test that it ran."""
    text = "import os\n\n\ndef test_it():\n    os.kill(os.getpid(), 9)\n"
    others = {f"test_{n}.py": PASSES for n in range(4)}
    options = [*set_up.PYTEST[2:], "-n2", "-p", "xdist"]
    result = run({"test_killed.py": text} | others, options=options)
    assert result.returncode not in (0, None)
    assert "crashed while running 'test_killed.py::test_it'" in result.stdout


@each_way
def test_what_tests_leave_in_the_checkout_fails_the_run(run, options):
    text = "from pathlib import Path\n\n\ndef test_it():\n    Path('saved').mkdir()\n"
    result = run({"test_leaves.py": text}, options=options)
    assert "2 passed" in result.stdout and result.returncode == 1
    assert "Tests have left this in the checkout: saved." in result.stdout


def test_what_a_script_starts_in_the_background_can_be_interrupted(run):
    """A shell makes it ignore SIGINT; a test that sends one would fail, or wait for ever."""
    done = run({"test_interrupted.py": INTERRUPT}, background=True, options=["-x"])
    assert "2 passed" in done.stdout


@pytest.mark.push("other ways to start pytest")
@pytest.mark.parametrize(
    ("gpus", "ran"), [(1, ["test_on_a_gpu"]), (2, ["test_on_gpus", "test_on_a_gpu"])]
)
def test_one_gpu_runs_the_tests_that_need_one(run, tmp_path, gpus, ran):
    """Those that need two stay out, and are counted, until there are two."""
    count = f"\n    def device_count():\n        return {gpus}\n"
    (tmp_path / "torch.py").write_text(NO_GPU.replace("False", "True") + count)
    result = run(LEFT_OUT)
    assert re.findall(r"FAILED test_marked.py::(\w+)", result.stdout) == ran, result.stdout
    assert ("1 test needs two GPUs" in result.stdout) is (gpus < 2)
    assert "needs a GPU" not in result.stdout


@pytest.mark.push("other ways to start pytest")
@each_way
def test_without_a_network_the_links_are_not_checked(run, monkeypatch, options):
    """It is said in words, with the test's name, and is no failure where nothing may skip."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")  # nobody listens there
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.delenv("WORKBOOK_ONLINE", raising=False)
    result = run(ONLINE, no_skips=True, options=options)
    assert result.returncode == 0, result.stdout
    message = result.stdout.split("not run on this machine")[1]
    assert "1 test needs a network and was not run here; `make test` on a machine that" in message
    assert "\n  test_site.py::test_it\n" in message


@pytest.mark.push("other ways to start pytest")
@pytest.mark.parametrize(
    ("number", "named"),
    [
        (2, "  test_lab.py::test_in_a_lab[0]\n  test_lab.py::test_in_a_lab[1]\n"),
        (50, "  test_lab.py, 50 of them\n"),  # fifty names would be too many to read
    ],
)
def test_where_no_cluster_can_be_started_it_is_told_what_lacks(run, tmp_path, number, named):
    """And what runs the tests. It is no failure in CI either."""
    (tmp_path / "tests" / "clusters.py").write_text('def missing():\n    return "a lab"\n')
    result = run({"test_lab.py": IN_A_LAB.format(number)}, no_skips=True, options=["--all"])
    assert result.returncode == 0, result.stdout
    message = result.stdout.split("not run on this machine")[1]
    assert f"{number} tests need a lab and were not run here; `make test-push` as root" in message
    assert "make system-packages" in message
    assert message.count("test_lab.py") == named.count("test_lab.py")
    assert f"\n{named}" in message and f"1 passed, {number} deselected" in message


def test_what_a_cluster_lacks_without_root_or_packages(monkeypatch):
    """The first thing that is missing, in words."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert clusters.missing.__wrapped__() == "root on Linux"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda program: program if program != "slurmd" else None)
    assert clusters.missing.__wrapped__() == "the Debian package slurmd"
    monkeypatch.setattr(shutil, "which", lambda program: None)
    message = clusters.missing.__wrapped__()
    assert message.startswith(
        "the Debian packages iproute2, slurmctld, slurmd, slurm-client, munge"
    )


def test_browser_tests_say_what_would_enable_them(run, tmp_path):
    """No Chromium: skipped with the command that installs it; with it, run."""
    without = run(IN_BROWSER, path=str(tmp_path), options=["--push"])
    assert without.returncode == 0
    assert "make system-packages" in without.stdout.split("not run on this machine")[1]
    browser = tmp_path / "chromium"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    assert "1 passed" in run({}, path=str(tmp_path), options=["--push"]).stdout


# Where only the reader's packages are

NO_DEVELOPER = """
import importlib.abc
import importlib.machinery
import sys


class Refuse(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name in {refused}:  # torch looks where some of them are, and does not import them
            return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):
        raise ModuleNotFoundError(spec.name + " is a package for developers")


sys.meta_path.insert(0, Refuse())
"""
FOR_DEVELOPERS = {"hypothesis", "sklearn", "scipy", "playwright.sync_api", "rattler", "xdist"}


@pytest.mark.push("other ways to start pytest")
def test_chosen_tests_need_no_package_of_the_others(tmp_path):
    """`pytest -k samplers` with only the reader's packages and pytest: every file is collected."""
    (tmp_path / "no_developer.py").write_text(NO_DEVELOPER.format(refused=FOR_DEVELOPERS))
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no_developer"]
    line += ["-p", "no:cacheprovider", "-k", "samplers"]
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    env["PYTEST_ADDOPTS"] = ""  # with -v the collected tests are listed in another form
    result = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "tests/course/samplers/test_samplers.py::" in result.stdout
