"""Where no cluster can be started, its tests are left out, and the end of the run says why."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import clusters

CONFTEST = Path(__file__).with_name("conftest.py")
LACKS = 'def missing():\n    return "a lab"\n'
IN_A_LAB = "import pytest\n\n\n@pytest.mark.cluster\n@pytest.mark.parametrize('i', range({}))\n"
TESTS = IN_A_LAB + "def test_in_a_lab(i):\n    assert 0\n\n\ndef test_elsewhere():\n    pass\n"


@pytest.fixture
def run(tmp_path):
    """Call with a number of cluster tests; gives pytest's words on a machine that lacks a lab."""
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    cluster\n    gpu\n    gpu1\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "clusters.py").write_text(LACKS)

    def run(number: int) -> str:
        (tmp_path / "test_lab.py").write_text(TESTS.format(number))
        quiet = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "WORKBOOK_NO_SKIPS": "1"}
        env = os.environ | quiet | {"PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_lab.py"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.mark.parametrize(
    ("number", "named"),
    [
        (2, "  test_lab.py::test_in_a_lab[0]\n  test_lab.py::test_in_a_lab[1]\n"),
        (50, "  test_lab.py, 50 of them\n"),  # fifty names would be too many to read
    ],
)
def test_what_is_missing_and_what_runs_the_tests_is_told(run, number, named):
    """It is no failure in CI either."""
    told = run(number).split("not run on this machine")[1]
    assert f"{number} tests need a lab and were not run here; `make test` as root" in told
    assert "make system-packages" in told and told.count("test_lab.py") == named.count(
        "test_lab.py"
    )
    assert f"\n{named}" in told and f"1 passed, {number} deselected" in told


def test_what_is_missing_without_root_or_packages(monkeypatch):
    """The first thing that is missing, in words."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert clusters.missing.__wrapped__() == "root on Linux"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda program: program if program != "slurmd" else None)
    assert clusters.missing.__wrapped__() == "the Debian package slurmd"
    monkeypatch.setattr(shutil, "which", lambda program: None)
    told = clusters.missing.__wrapped__()
    assert told.startswith("the Debian packages iproute2, slurmctld, slurmd, slurm-client, munge")
