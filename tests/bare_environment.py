"""An environment with chosen packages and what they need, without a network and without copies.

It shows what a list of requirements is worth: nothing else of this environment can be imported.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

TEST_VARIABLES = ("PYTHONPATH", "PYTEST_ADDOPTS", "PIP_FIND_LINKS", "PIP_CONSTRAINT")


def closure(lines: Iterable[str]) -> list[Distribution]:
    """The distributions of this environment that fulfil these requirements, and all they need."""
    queue, found = [(Requirement(line), "") for line in lines], {}
    for requirement, extra in queue:  # grows
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        one = distribution(requirement.name)
        key = one.metadata["Name"], frozenset(requirement.extras)
        if key not in found:
            found[key] = one
            wanted = [Requirement(line) for line in one.requires or []]
            queue += [(next_, extra) for next_ in wanted for extra in {"", *requirement.extras}]
    return list({one.metadata["Name"]: one for one in found.values()}.values())


def make(folder: Path, lines: Iterable[str]) -> Path:
    """A new environment whose packages are links to those of this one; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    for one in closure(lines):
        tops = {file.parts[0] for file in one.files or [] if file.parts[0] not in ("..", ".")}
        for top in tops - {"__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(os.path.abspath(one.locate_file(top)))
    return folder / "bin" / "python"


def install(python: Path, *words: str) -> subprocess.CompletedProcess:
    """`pip install` there, which finds nothing but what is there or named."""
    line = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", *words]
    return subprocess.run(line, env=environment(), capture_output=True, text=True)


def environment() -> dict[str, str]:
    """The variables of somebody who has never heard of this checkout."""
    hidden = {name: value for name, value in os.environ.items() if name not in TEST_VARIABLES}
    return hidden | {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
