"""The end of a test run: what was not run is said in words, and in CI nothing may skip."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")

PASSES = "def test_passes():\n    pass\n"
SKIPS = "import pytest\n\n\ndef test_skips():\n    pytest.skip('no such device')\n"
EXPECTED = (
    "import pytest\n\n\n@pytest.mark.xfail(reason='later')\ndef test_later():\n    assert 0\n"
)
UNEXPECTED = EXPECTED.replace("assert 0", "pass")
WHOLE_FILE = "import pytest\n\npytest.importorskip('no_such_module_at_all')\n"
ON_GPUS = "import pytest\n\n\n@pytest.mark.gpu\ndef test_on_gpus():\n    assert 0\n"
IN_BROWSER = "import pytest\n\n\n@pytest.mark.browser\ndef test_page():\n    pass\n"


@pytest.fixture
def run(tmp_path):
    """Call with the text of a test file; gives the finished pytest run, with this conftest."""
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu\n    browser\n")
    (tmp_path / "no_gpu.py").write_text("import conftest\nconftest.gpu_count = lambda: 0\n")

    def run(text, no_skips=False, path=os.environ["PATH"], options=()):
        (tmp_path / "test_it.py").write_text(text)
        env = dict(os.environ, PATH=path, PYTHONPATH=str(tmp_path))
        env["WORKBOOK_NO_SKIPS"] = "1" if no_skips else ""
        command = [sys.executable, "-m", "pytest", "-ra", "-p", "no_gpu", "-p", "no:cacheprovider"]
        command += options
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    return run


@pytest.mark.parametrize("text", [SKIPS, EXPECTED, UNEXPECTED, WHOLE_FILE])
def test_nothing_may_skip_in_ci(run, text):
    """Skips, expected failures and unexpected passes pass on a laptop and fail in CI, by name."""
    assert run(PASSES + text).returncode == 0 or text is WHOLE_FILE
    strict = run(PASSES + text, no_skips=True)
    assert strict.returncode != 0
    assert "nothing may skip here" in strict.stdout
    assert "test_it.py" in strict.stdout


def test_a_run_without_skips_stays_green_in_ci(run):
    """The strict switch changes nothing where nothing skips."""
    assert run(PASSES, no_skips=True).returncode == 0


@pytest.mark.parametrize("no_skips", [False, True])
def test_gpu_tests_are_left_out_in_words(run, no_skips):
    """No GPUs: the marked test is not run, does not fail the run, and is named at its end."""
    done = run(PASSES + ON_GPUS, no_skips=no_skips)
    assert done.returncode == 0, done.stdout
    assert "1 test needs a GPU and was not run here" in done.stdout
    assert "test_on_gpus" in done.stdout
    assert "1 passed, 1 deselected" in done.stdout


@pytest.mark.parametrize("no_skips", [False, True])
def test_the_words_are_there_with_two_workers_too(run, no_skips):
    """`make test` lets two processes share the tests; what they leave out is told as well."""
    done = run(PASSES + ON_GPUS, no_skips=no_skips, options=["-n", "2", "--dist", "loadfile"])
    assert done.returncode == 0, done.stdout
    assert "1 test needs a GPU and was not run here" in done.stdout
    assert "1 passed" in done.stdout
    strict = run(PASSES + SKIPS, no_skips=no_skips, options=["-n", "2", "--dist", "loadfile"])
    assert bool(strict.returncode) == no_skips
    assert ("nothing may skip here" in strict.stdout) == no_skips


def test_browser_tests_say_what_would_enable_them(run, tmp_path):
    """No Chromium: skipped with the command that installs it; with it, run."""
    without = run(IN_BROWSER, path=str(tmp_path))
    assert without.returncode == 0
    assert "make system-packages" in without.stdout.split("not run on this machine")[1]
    browser = tmp_path / "chromium"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    assert "1 passed" in run(IN_BROWSER, path=str(tmp_path)).stdout
