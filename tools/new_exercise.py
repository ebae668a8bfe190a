"""A new exercise: its file, wrong answers to start from, and its cells on the page.

    python -m tools.new_exercise NAME --chapter 05 --after X    writes all that is missing
    python -m tools.new_exercise NAME --sync                    renews the page after an edit
    python -m tools.new_exercise --sync                         renews all pages
    python -m tools.new_exercise NAME --try answer.py ...       prints verdicts on cells

Task, stub and minutes are written once, in the exercise's file, and the order in `CHAPTERS`; the
page has copies, which `--sync` makes. A title that is changed on the page stays.
"""

import argparse
import ast
import contextlib
import keyword
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat

from tools.set_up import ROOT

EXERCISES = ROOT / "src" / "ddp_workbook" / "exercises"
WRONG = ROOT / "tests" / "wrong_answers"
HEADING = re.compile(r"### (?:\d+\. )?(?P<title>.*?)(?P<minutes> \(\d+ min\))?")
BLOCK = re.compile(r"    |[-*|] |\d+\. |```")  # such a line begins a block, or is code
BLOCK_END = re.compile(r"$|    |\||```")  # after such a line another block begins
FILE = '''"""One sentence that says what to do.

What the ranks hold, when the function is called, what it returns: at most two short paragraphs and
a list. Every rule that the check needs is here, and no rule that the solution breaks.
"""

import torch
import torch.distributed as dist

from ddp_workbook.exercises import OnRanks, edit

MINUTES = 8
HINTS = [
    "A question that points at the first step.",
    "What to use, and what it leaves undone. Not the line of code.",
]


def {name}(value: float) -> float:
    """Return what, on which ranks; shapes and units."""
    ### BEGIN SOLUTION
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item()
    ### END SOLUTION


CHECK = OnRanks(
    # A call each, with a value for each rank. What would a wrong answer get right by luck?
    cases=[[4.5, -2.25, 7.0, 1.5], [-3.5, -1.25, -8.0, -2.75]],
    called="the ranks held {{case}}",
    right=lambda values: sum(values),
    mistakes={{  # where to look -> a typical thought, as an edit of the solution above
        "This is rank {{rank}}'s own number. How do the others' numbers get here?": edit(
            "total.item()", "value"
        ),
        "This is the mean. By what was it divided?": edit(
            "total.item()", "total.item() / dist.get_world_size()"
        ),
    }},
    otherwise="Which of the ranks' numbers are in your result, and how often?",
    most=1,
    proves="every rank returns the sum, at 1 to 4 ranks, with one collective",
)
'''
ANSWERS = """# %% only rank 0 calls the collective
# told: has returned without it
# right at: 1
def {name}(value):
    total = torch.tensor(value)
    if dist.get_rank() == 0:
        dist.all_reduce(total)
    return total.item()


# %% starts the collective and does not wait for it
# told: still at work when your function returned
edit("all_reduce(total)", "all_reduce(total, async_op=True)")


# %% returns what all_reduce returns
# told: Does the function return its result
body("return dist.all_reduce(torch.tensor(value))")
"""


def main(words: list[str] | None = None) -> None:
    """Run the command line; end with a message if something is wrong with it."""
    options = parser().parse_args(words)
    if options.try_out:
        try_out(options.name, options.try_out)
        return
    if options.chapter:
        add(options.name, options.chapter, options.after)
    elif not options.sync:
        sys.exit("Give --chapter 05 for a new exercise, or --sync to renew its page.")
    sync(options.name)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    told = argparse.ArgumentParser(prog="python -m tools.new_exercise", description=__doc__)
    told.formatter_class = argparse.RawDescriptionHelpFormatter
    told.add_argument("name", nargs="?", help="the function's name, such as mean_over_ranks")
    told.add_argument("--chapter", metavar="05", help="number of the page that it belongs to")
    told.add_argument("--after", metavar="X", help="the exercise that it follows; else the last")
    told.add_argument("--sync", action="store_true", help="renew the cells of the page")
    told.add_argument("--try", nargs="+", dest="try_out", metavar="FILE", help="judge these cells")
    return told


def try_out(name: str | None, files: list[str]) -> None:
    """Print the verdict on each cell of these files, as its reader would see it; save nothing here.

    A file is one cell, or several as in tests/wrong_answers.
    """
    from ddp_workbook.exercises.judging.catalogue import UnknownExercise, find
    from ddp_workbook.exercises.judging.judge import examine
    from tools.wrong_answers import cell_of, read

    cells = {}
    try:
        exercise = find(name)
        for file in files:
            text = Path(file).read_text(encoding="utf-8")
            parts = {f"{file}: {one.wrong}": one.cell for one in read(text, exercise)}
            cells |= parts or {file: cell_of(text, exercise)}
    except (UnknownExercise, OSError, ValueError) as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for title, cell in cells.items():
            answer = re.sub(r"\A%%exercise .*\n", "", cell)  # as in the notebook
            print(f"--- {title}\n{examine(exercise, answer)}\n")


def add(name: str | None, chapter: str, after: str | None) -> None:
    """Write the file of the exercise and its wrong answers, and enter it in CHAPTERS."""
    from ddp_workbook.exercises import CHAPTERS

    if not name or not name.isidentifier() or keyword.iskeyword(name):
        sys.exit(f"{name!r} cannot be the name of a function: letters, digits and _ make one.")
    stem = page(chapter).stem.partition("_")[2]
    known = CHAPTERS.get(stem, [])
    if name in {one for listed in CHAPTERS.values() for one in listed}:
        sys.exit(f"There is an exercise {name} already. --sync renews its cells.")
    if not known or (after and after not in known):
        sys.exit(
            f"{after or 'No exercise'} belongs to chapter {chapter}; there are: {known or 'none'}."
        )
    path = EXERCISES / f"{name}.py"
    if not path.exists():
        path.write_text(FILE.format(name=name), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    answers = WRONG / f"{name}.py"
    if not answers.exists():
        answers.write_text(ANSWERS.format(name=name), encoding="utf-8")
        print(f"wrote {answers.relative_to(ROOT)}")
    enter(name, after or known[-1])
    CHAPTERS[stem].insert(CHAPTERS[stem].index(after or known[-1]) + 1, name)


def enter(name: str, before: str) -> None:
    """Write the name into CHAPTERS, after another one."""
    path = EXERCISES / "__init__.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(f'"{before}"', f'"{before}",\n"{name}"', 1), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(path)], check=True)
    print(f"entered {name} in {path.relative_to(ROOT)}")


def page(chapter: str) -> Path:
    """The notebook with this number, or with this stem."""
    found = [
        path
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
        if chapter in (path.stem[:2], path.stem.partition("_")[2])
    ]
    if not found:
        sys.exit(f"There is no page {chapter}: notebooks/ has 00 to 06, each with its number.")
    return found[0]


def sync(name: str | None) -> None:
    """Renew the cells of one exercise on its page, or of all exercises for None."""
    from ddp_workbook.exercises import CHAPTERS

    if name and not any(name in listed for listed in CHAPTERS.values()):
        sys.exit(f"There is no exercise {name}: --chapter makes one.")
    for stem, listed in CHAPTERS.items():
        if not name or name in listed:
            renew(page(stem), listed, [name] if name else listed)


def renew(path: Path, listed: list[str], wanted: list[str]) -> None:
    """Renew these exercises' cells; a missing exercise is inserted after its predecessor."""
    notebook = nbformat.read(path, as_version=4)
    before = nbformat.writes(notebook)
    for number, name in enumerate(listed, start=1):
        if f"ex-{slug(name)}" not in {cell.id for cell in notebook.cells}:
            if name not in wanted:
                continue
            insert(notebook, name, listed[number - 2] if number > 1 else None)
        cells = {cell.id: cell for cell in notebook.cells}
        first, _, task = cells[f"ex-{slug(name)}-task"].source.partition("\n")
        minutes = HEADING.fullmatch(first)["minutes"] or ""
        if name in wanted:
            task, minutes = task_of(name), f" ({minutes_of(name)} min)"
            cells[f"ex-{slug(name)}"].source = f"%%exercise {name}\n{stub_of(name)}".rstrip()
        place = f"{number}. " * (len(listed) > 1)
        title = HEADING.fullmatch(first)["title"]
        cells[f"ex-{slug(name)}-task"].source = f"### {place}{title}{minutes}\n{task}"
    if nbformat.writes(notebook) != before:
        nbformat.write(notebook, path)
        print(f"renewed {path.relative_to(ROOT)}")


def insert(notebook: nbformat.NotebookNode, name: str, previous: str | None) -> None:
    """Add the four cells of an exercise after those of the previous one."""
    new = nbformat.v4
    known, cells = slug(name), notebook.cells
    title = name.replace("_", " ").capitalize()
    made = [
        new.new_markdown_cell(f"### {title}", id=f"ex-{known}-task"),
        new.new_code_cell("", id=f"ex-{known}"),
        new.new_code_cell(f'hint("{name}")', id=f"ex-{known}-hint"),
        new.new_code_cell(f'solution("{name}")', id=f"ex-{known}-solution"),
    ]
    anchors = [f"ex-{slug(previous)}-solution"] if previous else ["exercises"]
    place = next((n for n, cell in enumerate(cells) if cell.id in anchors), None)
    if place is None:
        sys.exit(f"The page has no cell with the id {anchors[0]}, after which {name} would come.")
    cells[place + 1 : place + 1] = made


def slug(name: str) -> str:
    """The name as cell ids have it."""
    return name.replace("_", "-")


def text_of(name: str) -> str:
    """The exercise's file."""
    return (EXERCISES / f"{name}.py").read_text(encoding="utf-8")


def task_of(name: str) -> str:
    """The task: the file's docstring, each paragraph and each item on one line."""
    lines: list[str] = []
    for line in (ast.get_docstring(ast.parse(text_of(name))) or "").splitlines():
        if lines and line.strip() and not BLOCK.match(line) and not BLOCK_END.match(lines[-1]):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(lines)


def stub_of(name: str) -> str:
    """The cell as the reader gets it."""
    from ddp_workbook.exercises.judging.source import stub

    return stub(text_of(name), name)


def minutes_of(name: str) -> int:
    """The value of MINUTES in the file."""
    found = re.search(r"^MINUTES = (\d+)$", text_of(name), flags=re.M)
    if not found:
        sys.exit(f"exercises/{name}.py has no line MINUTES = 8: how long does an attendee need?")
    return int(found[1])


if __name__ == "__main__":
    main()
