"""The notebooks as files: found by name, read and written without losing anything."""

import difflib
import json
import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from manyranks.errors import WorkbookError
from manyranks.files import write_atomically

CHECKOUT = Path(__file__).parents[3]
FOLDER = CHECKOUT / "notebooks"
# further/NN_further_<topic>: beside a chapter's page, for those who want more
FURTHER, FURTHER_FOLDER = "_further_", "further"
STATED = re.compile(r"\*teaching (\d+) min · exercises (\d+) min\*")
EXERCISE = re.compile(r"%%exercise (\w+)\n?")
# A cell that asks a question; its words stand below, for those who read without a kernel
PREDICT_CALL = re.compile(r'predict\("(\w+)"\)(?:\n#.*)*$')


class BadPage(WorkbookError, ValueError):
    """A page that does not exist, or that cannot be read or written."""


def in_order(stem: str) -> tuple[str, bool, str]:
    """Sort key of a page: by chapter, and a chapter's own page before its further ones."""
    return stem[:2], FURTHER in stem, stem


def all_pages() -> list[Path]:
    """The notebooks of this checkout, in their order. Raises BadPage if there are none."""
    paths = sorted(
        [*FOLDER.glob("*.ipynb"), *FOLDER.glob(f"{FURTHER_FOLDER}/*.ipynb")],
        key=lambda path: in_order(path.stem),
    )
    if not paths:
        raise BadPage(
            f"There are no notebooks in {FOLDER}. The workbook is used from its own folder, which "
            "`git clone` makes: set it up there, with `make setup`."
        )
    return paths


def place_of(stem: str) -> str:
    """The page's path below the folder of the notebooks."""
    return f"{FURTHER_FOLDER}/{stem}.ipynb" if FURTHER in stem else f"{stem}.ipynb"


def link_to(stem: str, here: str) -> str:
    """The address of a page in a link on the page `here`; both are stems."""
    if FURTHER in here:
        return f"{stem}.ipynb" if FURTHER in stem else f"../{stem}.ipynb"
    return place_of(stem)


def work_in_the_folder_of_all_pages() -> None:
    """A further page's kernel begins in that page's own folder: go up to where work/ is."""
    here = Path.cwd()
    if here.name == FURTHER_FOLDER and any(here.parent.glob("00_*.ipynb")):
        os.chdir(here.parent)


def find_pages(names: Sequence[str], among: list[Path] | None = None) -> list[Path]:
    """The pages with these names, such as 02, samplers, 04_samplers or a path; all without names.

    They are looked for `among` these, by default among those of this checkout.

    Raises BadPage for a name that fits no page, with the nearest one.
    """
    pages = all_pages() if among is None else among
    return [_find(name, pages) for name in names] if names else pages


def _find(name: str, pages: list[Path]) -> Path:
    key = Path(name).name.removesuffix(".ipynb")
    for page in pages:
        core = FURTHER not in page.stem
        if key in (page.stem, page.stem[3:]) or (core and key == page.stem[:2]):
            return page
    stems = sorted((page.stem for page in pages), key=in_order)
    near = difflib.get_close_matches(key, [*stems, *(stem[3:] for stem in stems)], 1, 0.5)
    raise BadPage(no_such("page", name, near, stems))


def no_such(what: str, name: str, near: Sequence[str], known: Sequence[str]) -> str:
    """That there is nothing with this name, and what was meant; all there is if nothing is near."""
    if near:
        return f"There is no {what} called {name!r}. Did you mean {near[0]}?"
    names = textwrap.fill(", ".join(known), 78, initial_indent="  ", subsequent_indent="  ")
    return f"There is no {what} called {name!r}. There are:\n{names}"


def page_of(exercise: str) -> Path:
    """The page that has this exercise's cell, or its place. Raises BadPage if none has."""
    for path in all_pages():
        page = load(path)
        ids = {cell.get("id") for cell in page["cells"]}
        if ids & set(_ids(exercise)) or any(name == exercise for name, _ in exercises(page)):
            return path
    raise BadPage(
        f"No page has a cell for {exercise}. `reset --page` brings back a whole page as it was."
    )


def _ids(exercise: str) -> tuple[str, str, str]:
    """The ids with which its task, its cell and its hint are shipped."""
    cell = f"ex-{exercise.replace('_', '-')}"
    return f"{cell}-task", cell, f"{cell}-hint"


def cell_of(notebook: dict, exercise: str) -> dict | None:
    """The exercise's cell; a new one between its task and its hint if it was deleted.

    None if the notebook has no place for it.
    """
    for name, cell in exercises(notebook):
        if name == exercise:
            return cell
    task, own, hint = _ids(exercise)
    places = {cell.get("id"): place for place, cell in enumerate(notebook["cells"])}
    if own in places:
        return notebook["cells"][places[own]]
    place = places[task] + 1 if task in places else places.get(hint)
    if place is None:
        return None
    cell = {"cell_type": "code", "id": own, "metadata": {}, "source": []}
    notebook["cells"].insert(place, cell)
    return cell


def load(path: Path) -> dict:
    """The notebook as JSON, with everything that a newer Jupyter may have put into it.

    Raises BadPage if it is not a notebook of format 4.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        version = notebook["nbformat"]
    except OSError as error:
        raise BadPage(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise BadPage(f"{path} is not a notebook, or only a part of one.") from None
    if version != 4:
        raise BadPage(
            f"{path} has notebook format {version}, and the workbook reads format 4. In the "
            "JupyterLab that saved it, download it again, or take the page from git."
        )
    return notebook


def save(path: Path, notebook: dict) -> None:
    """Write the notebook as Jupyter does. If that fails, raises BadPage and changes nothing."""
    try:
        write_atomically(path, json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise BadPage(f"{path} cannot be written: {error.strerror}. Nothing was changed.") from None


def source(cell: dict) -> str:
    """A cell's text."""
    return "".join(cell["source"])


def title(notebook: dict) -> str:
    """The page's first heading."""
    return source(notebook["cells"][0]).partition("\n")[0].lstrip("# ")


def minutes(notebook: dict) -> str:
    """ "16 + 22 min", as the page states them for teaching and exercises; "" if it states none."""
    match = STATED.search(source(notebook["cells"][0]))
    return f"{match[1]} + {match[2]} min" if match else ""


def exercises(notebook: dict) -> list[tuple[str, dict]]:
    """(name, cell) of each exercise on the page."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    matches = [(EXERCISE.match(source(cell)), cell) for cell in code]
    return [(match[1], cell) for match, cell in matches if match]


def fill(cell: dict, name: str, code: str) -> None:
    """Put this code into the exercise's cell, and remove what the cell had shown."""
    cell["source"] = f"%%exercise {name}\n{code}".rstrip("\n").splitlines(keepends=True)
    cell["outputs"], cell["execution_count"] = [], None
