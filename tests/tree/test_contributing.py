"""What a contributor is told, and what a runner and a devcontainer run, exists and agrees."""

import json
import re
from importlib.util import find_spec

import pytest
import typer
import yaml
from packaging.specifiers import SpecifierSet

from ddp_workbook.cli import app
from manyranks.cli import app as tools_app
from tools import set_up
from tools.minutes import GUIDE
from tools.set_up import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
HOSTED = sorted(ROOT.glob(".github/**/*.*")) + sorted(ROOT.glob(".devcontainer/*"))
FITS = SpecifierSet(re.search(r'requires-python = "(.*?)"', set_up.PROJECT.read_text())[1])
PYTHONS = [f"3.{minor}" for minor in range(30) if f"3.{minor}" in FITS]


def test_commands_exist():
    """Modules behind `python -m`, targets of make, commands of the program and their options."""
    targets = re.search(r"(?m)^\.PHONY: (.*)$", (ROOT / "Makefile").read_text())[1].split()
    commands = {
        **typer.main.get_command(app).commands,
        **typer.main.get_command(tools_app).commands,
    }
    for path in [*HOSTED, *ROOT.glob("*.md"), GUIDE]:
        text = path.read_text(encoding="utf-8")
        assert all(map(find_spec, re.findall(r"-m ((?:tools|tests)[\w.]*\w)", text)))
        assert {*re.findall(r'(?m)(?:^|`|run: |")make ([a-z-]+)', text)} <= {*targets}
        for name, rest in re.findall(
            r"(?:bin/|`|\$ )(?:ddp-workbook|manyranks) ([a-z]+)((?: [^`\n|]*)?)", text
        ):
            options = {
                option
                for one in commands[name].params
                for option in [*one.opts, *one.secondary_opts]
            }
            own, _, _ = rest.partition(" -- ")  # what follows is a script's own
            assert {*re.findall(r"--[a-z-]+", own)} <= options | {"--help"}, name


@pytest.mark.parametrize("path", [one for one in HOSTED if one.suffix == ".yml"], ids=str)
def test_templates_can_be_read(path):
    """Every field of an issue has an id of its own."""
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    ids = [field["id"] for field in read.get("body", [])]
    assert len(set(ids)) == len(ids) and ("body" not in read or (read["name"] and ids))


def test_a_hosted_runner_runs_the_same_command():
    """With every Python that pyproject.toml allows, within a limit, and with no more rights."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["strategy"]["matrix"]["python"] == PYTHONS and job["timeout-minutes"] <= 90
        actions = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in actions)
    assert {"run": ".ci/run"} in workflow["jobs"]["ci-run"]["steps"]
    assert (ROOT / ".ci/run").stat().st_mode & 0o100


def test_every_test_is_run_once_a_week():
    """The parts of the weekly run are all folders of tests, none twice, and may do no more."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/everything.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    job = workflow["jobs"]["test-all"]
    assert job["steps"][-1] == {"run": 'make test-all ARGS="${{ matrix.part }}"'}
    named = " ".join(job["strategy"]["matrix"]["part"]).split()
    folders = {path.parts[len(ROOT.parts) + 1] for path in ROOT.glob("tests/**/test_*.py")}
    assert sorted(named) == sorted(f"tests/{folder}" for folder in folders)


def test_the_devcontainer_sets_up_a_reader():
    """A Python that fits, no GPU, and JupyterLab as everywhere: with its token."""
    text = (ROOT / ".devcontainer/devcontainer.json").read_text()
    read = json.loads(text)
    assert re.search(r"python:(3\.\d+)-", read["image"])[1] in PYTHONS
    assert read["postCreateCommand"] == "make setup" and read["containerEnv"] == {"TORCH": "cpu"}
    assert "token" not in text.lower() and "--gpus" not in text
