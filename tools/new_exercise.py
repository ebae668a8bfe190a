"""A new exercise: its file, wrong answers to start from, and its cells on the page.

    python -m tools.new_exercise NAME --page 02_further_constructor    writes all that is missing
    python -m tools.new_exercise --sync                                renews what is computed
    python -m tools.new_exercise NAME --try answer.py ...              prints verdicts on cells

Task, stub and minutes are written once, in the exercise's file, and the order in `CHAPTERS`; a
question is written in its table. The page has copies of them, and what follows from the minutes
stands in three more places: `--sync` renews all of these. A title changed on the page stays.
"""

import argparse
import ast
import contextlib
import json
import keyword
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat

from ddp_workbook.judging.catalogue import CHAPTERS
from ddp_workbook.judging.source import path_of
from ddp_workbook.page import pages, questions
from ddp_workbook.workshop.minutes import of_exercise
from ddp_workbook.workshop.timetable import all_minutes
from tools import minutes
from tools.set_up import ROOT

EXERCISES = ROOT / "src" / "ddp_workbook" / "exercises"
CATALOGUE = ROOT / "src" / "ddp_workbook" / "judging" / "catalogue.py"
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

from ddp_workbook.judging import Comparison, DistributedCheck, body, edit

MINUTES = {minutes}
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


CHECK = DistributedCheck(
    # A call each, with a value for each rank. What would a wrong answer get right by luck?
    cases=[[4.5, -2.25, 7.0, 1.5], [-3.5, -1.25, -8.0, -2.75]],
    call_text="the ranks held {{values}}",  # without it: the function and its arguments
    compare=Comparison(
        "Which of the ranks' numbers are in your result, and how often?",
        lambda values: sum(values),  # without it: what the solution gives
    ),
    mistakes={{  # where to look -> a typical thought, as an edit of the solution above
        "This is rank {{rank}}'s own number, and nothing was sent. Who adds?": body("return value"),
        "This is rank {{rank}}'s own number. Which tensor holds the sum?": edit(
            "total.item()", "value"
        ),
        "This is the mean. By what was it divided?": edit(
            "total.item()", "total.item() / dist.get_world_size()"
        ),
    }},
    max_collectives=1,
    on_pass="every rank returns the sum, at 1 to 4 ranks, with one collective",
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
    elif options.page:
        add(options.name, options.page, options.after, options.minutes)
        sync()
    elif options.sync:
        sync()
    else:
        sys.exit("Give --page 02_further_constructor for a new exercise, or --sync to renew pages.")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(prog="python -m tools.new_exercise", description=__doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("name", nargs="?", help="the function's name, such as mean_over_ranks")
    options.add_argument("--page", "--chapter", help="the page that gets it: its name or number")
    options.add_argument("--after", metavar="X", help="the exercise that it follows; else the last")
    options.add_argument(
        "--minutes", type=int, default=8, help="what it takes, reading included; 8"
    )
    options.add_argument("--sync", action="store_true", help="renew the pages and all minutes")
    options.add_argument(
        "--try", nargs="+", dest="try_out", metavar="FILE", help="judge these cells"
    )
    return options


def try_out(name: str | None, files: list[str]) -> None:
    """Print the verdict on each cell of these files, as its reader would see it; save nothing here.

    A file is one cell, or several as in tests/wrong_answers.
    """
    from ddp_workbook.judging.catalogue import UnknownExercise, find
    from ddp_workbook.judging.judge import examine
    from tools.wrong_answers import cell_of, read

    cells = {}
    try:
        exercise = find(name)
        for file in files:
            text = Path(file).read_text(encoding="utf-8")
            text = re.sub(r"\A%%exercise .*\n", "", text)  # as in the notebook
            parts = {f"{file}: {answer.wrong}": answer.cell for answer in read(text, exercise)}
            whole = re.search(r"^(import|from) ", text, re.M)
            cells |= parts or {file: text if whole else cell_of(text, exercise)}
    except (UnknownExercise, OSError, ValueError) as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for title, cell in cells.items():
            print(f"--- {title}\n{examine(exercise, cell)}\n")


def add(name: str | None, page: str, after: str | None, minutes_needed: int) -> None:
    """Write the file of the exercise and its wrong answers, and enter it in CHAPTERS."""
    if not name or not name.isidentifier() or keyword.iskeyword(name):
        sys.exit(f"{name!r} cannot be the name of a function: letters, digits and _ make one.")
    if name in {exercise for names in CHAPTERS.values() for exercise in names}:
        sys.exit(f"There is an exercise {name} already. --sync renews its cells.")
    path = page_of(page)
    names = CHAPTERS.get(path.stem[3:], [])
    if after and after not in names:
        sys.exit(f"{after} is not on {path.stem}, which has: {', '.join(names) or 'none'}.")
    known = all_minutes()
    teaching, exercises = known[path.stem]
    minutes.refuse_too_long({**known, path.stem: (teaching, exercises + minutes_needed)})
    chapter = page_of(path.stem[:2]).stem[3:]
    file, answers = EXERCISES / chapter / f"{name}.py", WRONG / f"{name}.py"
    for new, text in ((file, FILE), (answers, ANSWERS)):
        if not new.exists():
            new.write_text(text.format(name=name, minutes=minutes_needed), encoding="utf-8")
            print(f"wrote {new.relative_to(ROOT)}")
    place = names.index(after) + 1 if after else len(names)
    CHAPTERS[path.stem[3:]] = [*names[:place], name, *names[place:]]
    enter()


def enter() -> None:
    """Write CHAPTERS as it is now, in the order of the pages."""
    path = CATALOGUE
    stems = [page.stem[3:] for page in pages.all_pages() if page.stem[3:] in CHAPTERS]
    lines = "".join(f"    {json.dumps(stem)}: {json.dumps(CHAPTERS[stem])},\n" for stem in stems)
    text = path.read_text(encoding="utf-8")
    new_text = re.sub(r"(?sm)^CHAPTERS = \{\n.*?^\}", f"CHAPTERS = {{\n{lines}}}", text, count=1)
    path.write_text(new_text, encoding="utf-8")
    ruff("format", "-q", str(path))
    print(f"entered in {path.relative_to(ROOT)}")


def ruff(*words: str) -> None:
    """Run ruff, as `make lint` does."""
    subprocess.run([sys.executable, "-m", "ruff", *words], check=True)


def page_of(name: str) -> Path:
    """The notebook with this number, stem or name; a number means the chapter's own page."""
    try:
        return pages.find_pages([name])[0]
    except pages.BadPage as error:
        sys.exit(str(error))


def sync() -> None:
    """Renew the cells of all exercises and questions, and every minute that follows."""
    known = all_minutes()
    minutes.refuse_too_long(known)
    for stem, names in CHAPTERS.items():
        renew(page_of(stem), names)
    for path in pages.all_pages():
        renew_questions(path)
    minutes.write(known)


def renew_questions(path: Path) -> None:
    """Write the words of each question below its call, in a cell that JupyterLab folds."""
    notebook = nbformat.read(path, as_version=4)
    before = nbformat.writes(notebook)
    for cell in notebook.cells:
        if asked := pages.PREDICT_CALL.match(cell.source):
            cell.source = questions.find(asked[1]).cell
            cell.metadata["jupyter"] = {"source_hidden": True}
    if nbformat.writes(notebook) != before:
        nbformat.write(notebook, path)
        print(f"questions of {path.relative_to(ROOT)}")


def renew(path: Path, names: list[str]) -> None:
    """Renew these exercises' cells; a missing exercise is inserted after its predecessor."""
    notebook = nbformat.read(path, as_version=4)
    before = nbformat.writes(notebook)
    for number, name in enumerate(names, start=1):
        if f"ex-{slug(name)}" not in {cell.id for cell in notebook.cells}:
            insert(notebook, name, names[number - 2] if number > 1 else None)
        cells = {cell.id: cell for cell in notebook.cells}
        own = cells[f"ex-{slug(name)}-task"]
        title = HEADING.fullmatch(own.source.partition("\n")[0])["title"]
        place = f"{number}. " if len(names) > 1 else ""
        own.source = f"### {place}{title} ({of_exercise(name)} min)\n{task_of(name)}"
        cells[f"ex-{slug(name)}"].source = f"%%exercise {name}\n{stub_of(name)}".rstrip()
    if nbformat.writes(notebook) != before:
        nbformat.write(notebook, path)
        ruff("check", "-q", "--fix", "--select=I", str(path))  # joins the imports of a new exercise
        ruff("format", "-q", str(path))
        print(f"renewed {path.relative_to(ROOT)}")


def insert(notebook: nbformat.NotebookNode, name: str, previous: str | None) -> None:
    """Add the four cells of an exercise after those of the previous one, or as the page's first."""
    new = nbformat.v4
    known, cells = slug(name), notebook.cells
    title = name.replace("_", " ").capitalize()
    new_cells = [
        new.new_markdown_cell(f"### {title}", id=f"ex-{known}-task"),
        new.new_code_cell("", id=f"ex-{known}"),
        new.new_code_cell(f'hint("{name}")', id=f"ex-{known}-hint"),
        new.new_code_cell(f'solution("{name}")', id=f"ex-{known}-solution"),
    ]
    if previous is None:
        prepare(notebook)
    for cell in cells if previous else []:
        cell.source = re.sub(r"(?m)^## Exercise$", "## Exercises", cell.source)
    anchor = f"ex-{slug(previous)}-solution" if previous else "exercises"
    place = next((n for n, cell in enumerate(cells) if cell.id == anchor), None)
    if place is None:
        sys.exit(f"The page has no cell with the id {anchor}, after which {name} would come.")
    cells[place + 1 : place + 1] = new_cells


def prepare(notebook: nbformat.NotebookNode) -> None:
    """Give a page without exercises their heading, before its closing part, and their imports."""
    cells = notebook.cells
    imports = next(cell for cell in cells if cell.id == "imports")
    mark = "from ddp_workbook import "  # ruff joins the two lines
    imports.source = imports.source.replace(mark, f"{mark}hint, solution\n{mark}", 1)
    place, end = next((n, c) for n, c in enumerate(cells) if "## What you can now say" in c.source)
    text, heading, closing = f"\n{end.source}".partition("\n## ")
    heading_cell = nbformat.v4.new_markdown_cell("## Exercise", id="exercises")
    if text:  # the last cell with text goes on with the closing part: that becomes its own cell
        end.source = text.strip("\n")
        last = nbformat.v4.new_markdown_cell(f"{heading}{closing}".lstrip("\n"), id="end")
        cells[place + 1 : place + 1] = [heading_cell, last]
    else:
        cells.insert(place, heading_cell)


def slug(name: str) -> str:
    """The name as cell ids have it."""
    return name.replace("_", "-")


def text_of(name: str) -> str:
    """The exercise's file."""
    return path_of(name).read_text(encoding="utf-8")


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
    from ddp_workbook.judging.source import stub

    return stub(text_of(name), name)


if __name__ == "__main__":
    main()
