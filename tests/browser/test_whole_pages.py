"""Whole pages in JupyterLab in Chromium: every cell, every slider, and who else can read them.

A push looks at three of them, `--all` at all.
"""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from PIL import Image, ImageStat

from ddp_workbook.page.pages import place_of
from tests.browser.accessibility import JUPYTERLABS_OWN, findings
from tests.browser.lab import TALLEST, THEMES, lab
from tools import book

# Of a control: the output of a cell that it stands in.
OUTPUT = "xpath=ancestor::*[contains(@class, 'jp-OutputArea-output')][1]"
BEYOND = """() => {
    const edge = document.querySelector('.jp-Notebook').getBoundingClientRect().right;
    return [...document.querySelectorAll('.jp-OutputArea-output img')]
        .filter(picture => picture.getBoundingClientRect().right > edge)
        .map(picture => picture.alt);
}"""
pytestmark = pytest.mark.browser
in_full = pytest.mark.release("whole pages in a browser")
# The first page, and one with a slider.
ON_A_PUSH = ("00_start_here", "05_further_ring")
PAGES = [
    pytest.param(path, id=path.stem, marks=[] if path.stem in ON_A_PUSH else [in_full])
    for path in book.NOTEBOOKS
]


@pytest.fixture(scope="module")
def open_in_lab(tmp_path_factory):
    """One JupyterLab and one browser for all pages, at a copy of their folders."""
    pytest.importorskip("playwright")
    root = tmp_path_factory.mktemp("checkout")
    book.copy_layout(root)
    with lab(root) as open_document:
        yield open_document


@pytest.fixture(scope="module", params=PAGES)
def page(request, open_in_lab):
    """A page after Run > Run All Cells."""
    notebook = open_in_lab(f"notebooks/{place_of(request.param.stem)}")
    notebook.run_all()
    yield notebook
    notebook.close()


def test_every_cell_runs_and_shows_what_it_should(page):
    """No error, no missing widget, no question laid over the page."""
    assert page.errors() == []
    assert page.faults() == []


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_of_ours(page, theme):
    """Contrast, names for screen readers, tables, what a keyboard reaches."""
    page.theme(theme)
    ours, others = findings(page.page)
    assert ours == []
    assert sorted(others.keys() - JUPYTERLABS_OWN) == [], others


def test_its_pictures_fit_a_narrow_window(page):
    """A window of 1,280 pixels at 200 %: no picture reaches beyond the page, in a player or out."""
    before = page.page.viewport_size
    page.page.set_viewport_size({"width": 640, "height": TALLEST})
    page.page.wait_for_timeout(1000)
    assert page.page.evaluate(BEYOND) == []
    page.page.set_viewport_size(before)


def test_its_sliders_move_by_keyboard_and_by_mouse(page, request):
    """Each move shows something else, in words too; a page without sliders shows none."""
    text = request.node.callspec.params["page"].read_text(encoding="utf-8")
    sliders = page.page.locator(".noUi-target").all()
    choices = page.page.locator(".widget-radio-box").all()
    moves = any(name in text for name in ("stepper(", "slider(", ".play_"))
    assert bool(sliders + choices) == moves
    for slider in sliders:
        area = slider.locator(OUTPUT)
        seen = [visible_output(area)]
        slider.locator(".noUi-handle").focus()
        for key in ("End", "ArrowLeft"):
            page.page.keyboard.press(key)
            page.wait_for(lambda area=area, seen=seen: visible_output(area) != seen[-1])
            seen.append(visible_output(area))
        track = slider.bounding_box()
        page.page.mouse.click(track["x"] + 1, track["y"] + track["height"] / 2)
        page.wait_for(lambda area=area, seen=seen: visible_output(area) not in seen[1:])


def test_its_choices_and_switches_move_by_keyboard_and_by_mouse(page):
    """The space bar chooses and switches; a click takes it back."""
    for box in page.page.locator(".widget-radio-box, .widget-checkbox").all():
        area = box.locator(OUTPUT)
        inputs = box.locator("input").all()
        seen = [visible_output(area)]
        inputs[-1].focus()
        page.page.keyboard.press("Space")
        page.wait_for(lambda area=area, seen=seen: visible_output(area) != seen[-1])
        seen.append(visible_output(area))
        inputs[0].click()
        page.wait_for(lambda area=area, seen=seen: visible_output(area) != seen[-1])


def visible_output(area) -> str:
    """The words of the pictures in an output, and of its status."""
    pictures = [picture.get_attribute("alt") for picture in area.locator("img").all()]
    return "\n".join(pictures + area.locator("[role=status]").all_inner_texts())


@in_full
def test_the_driver_sees_what_is_wrong(tmp_path):
    """As a command, on a notebook with a failing cell: exit code 1, the error, the pictures."""
    cells = [nbformat.v4.new_code_cell(text) for text in ("1 + 1", "1 / 0")]
    path, picture = tmp_path / "faulty.ipynb", tmp_path / "page.png"
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
    line = [sys.executable, "-m", "tests.browser.lab", str(path), str(picture)]
    result = subprocess.run(line, cwd=book.ROOT, capture_output=True, text=True)
    assert result.returncode == 1, result.stderr
    assert "ZeroDivisionError: division by zero" in result.stdout
    assert brightness(picture) > 200 > 100 > brightness(picture.with_stem("page-dark"))


def brightness(picture: Path) -> float:
    """Mean grey of a picture: 0 is black, 255 white."""
    return ImageStat.Stat(Image.open(picture).convert("L")).mean[0]
