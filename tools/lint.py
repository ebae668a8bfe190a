"""Formatting, lint, and notebooks without outputs: what .pre-commit-config.yaml checks, at once.

.venv/bin/python -m tools.lint          report
.venv/bin/python -m tools.lint --fix    mend what can be mended
"""

import subprocess
import sys

from tools.packages import ROOT


def main(arguments: list[str]) -> int:
    """Run all checks, also after one has failed; 1 if any did."""
    fix = "--fix" in arguments
    notebooks = sorted(str(path) for path in ROOT.glob("notebooks/*.ipynb"))
    commands = [
        ["ruff", "format", *([] if fix else ["--diff"]), "."],
        ["ruff", "check", *(["--fix"] if fix else []), "."],
        ["tools.clear_notebooks", *([] if fix else ["--check"]), *notebooks],
    ]
    failed = [
        command
        for command in commands
        if subprocess.run([sys.executable, "-m", *command], cwd=ROOT).returncode
    ]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
