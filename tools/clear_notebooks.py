"""Clear outputs and execution counts from notebooks; the exit code says whether there were any.

    .venv/bin/python -m tools.clear_notebooks notebooks/*.ipynb
    .venv/bin/python -m tools.clear_notebooks --check notebooks/*.ipynb    changes nothing

Outputs belong to the machine that made them, and make every diff unreadable.
"""

import json
import sys
from pathlib import Path


def clear(notebook: dict) -> int:
    """Empty outputs, execution counts and the cells' own run times, in place; how many cells."""
    changed = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        timed = cell["metadata"].pop("execution", None)
        if cell["outputs"] or cell["execution_count"] is not None or timed:
            changed += 1
        cell["outputs"], cell["execution_count"] = [], None
    return changed


def main(arguments: list[str]) -> int:
    """Clear (or only check) each notebook; 1 if any cell held something."""
    found = 0
    for path in [Path(name) for name in arguments if name != "--check"]:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = clear(notebook)
        found += cells
        if not cells:
            continue
        if "--check" in arguments:
            print(f"{path}: {cells} cells hold outputs: python -m tools.clear_notebooks {path}")
        else:
            text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
            path.write_text(text, encoding="utf-8")
            print(f"{path}: cleared {cells} cells")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
