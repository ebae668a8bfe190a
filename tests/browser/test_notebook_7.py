"""The first page in Notebook 7, a front end beside JupyterLab, in Chromium."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.traces import alive, wait_until
from ddp_workbook.judging.catalogue import find
from tests.browser.lab import CHROMIUM_OPTIONS, Notebook
from tests.browser.server import wait_for_server
from tests.conftest import chromium
from tools import book

pytestmark = pytest.mark.browser


@contextlib.contextmanager
def server(root: Path) -> Iterator[dict]:
    """`jupyter notebook` at the folder `root`; gives url, token, port, pid."""
    with tempfile.TemporaryDirectory(prefix="notebook-", ignore_cleanup_errors=True) as home:
        home = Path(home)
        env = dict(os.environ, IPYTHONDIR=str(home / "ipython"), JUPYTER_PREFER_ENV_PATH="1")
        for name in ("config", "data", "runtime"):
            env[f"JUPYTER_{name.upper()}_DIR"] = str(home / name)
        for name in ("settings", "workspaces"):
            env[f"JUPYTERLAB_{name.upper()}_DIR"] = str(home / name)
        line = [sys.executable, "-m", "notebook", "--no-browser", "--allow-root"]
        line += ["--expose-app-in-browser", "--ServerApp.port=0", f"--ServerApp.root_dir={root}"]
        with open(home / "log", "w") as log:
            options = {"env": env, "stdout": log, "stderr": log, "start_new_session": True}
            process = subprocess.Popen(line, **options)
        below = []
        try:
            yield wait_for_server(process, home)
            below = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        finally:
            process.terminate()  # it ends its kernels, and they their ranks
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert wait_until(lambda: not alive(below))


@pytest.fixture(scope="module")
def notebook(tmp_path_factory) -> Iterator[Notebook]:
    """The first page, its imports done; what a test writes into a cell stays there."""
    pytest.importorskip("notebook")
    playwright = pytest.importorskip("playwright.sync_api")
    root = tmp_path_factory.mktemp("checkout")
    book.copy_layout(root)
    with server(root) as about, playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=CHROMIUM_OPTIONS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        path = "notebooks/notebooks/00_start_here.ipynb"
        notebook = Notebook(page, f"{about['url']}{path}?token={about['token']}")
        notebook.run("imports")
        yield notebook
        assert notebook.errors() == [] and notebook.faults() == []
        browser.close()


def test_an_exercise_wrongly_and_then_rightly(notebook):
    """The verdict, the button of its first hint, and the table of contents."""
    cell = "ex-mean-over-ranks"
    exercise = find("mean_over_ranks")
    right = f"%%exercise mean_over_ranks\n{exercise.solution}"
    notebook.write(cell, right.replace(" / dist.get_world_size()", ""))
    output = notebook.run(cell)
    assert "Not yet: mean_over_ranks at 4 ranks" in output and exercise.hints[0] not in output
    notebook.cell(cell)[1].locator("summary").first.click()
    assert exercise.hints[0] in notebook.cell(cell)[1].inner_text()
    notebook.write(cell, right)
    assert "mean_over_ranks is solved" in notebook.run(cell)
    assert "1 of 1 solved" in notebook.run("progress")


SLIDER = """from ddp_workbook import stepper
from manyranks.figures import Picture

sums = launch(demos.first_sum.run_sum, ranks=2)
plot = demos.first_sum.sum_plot
stepper([Picture(plot(sums).figure, f"step {number}") for number in range(3)])"""


def test_pictures_tables_and_a_slider_are_drawn(notebook):
    """The mouse moves the slider. Arrow keys do not: Notebook 7 takes them to go to other cells."""
    notebook.run("sum-picture")
    assert notebook.cell("sum-picture")[1].locator("img").get_attribute("alt").startswith("One ")
    notebook.run("machine")
    assert notebook.cell("machine")[1].locator("table").count() == 1
    notebook.write("chapter", SLIDER)
    notebook.run("chapter")
    cell = notebook.cell("chapter")[1]
    picture, slider = cell.locator(".jupyter-widgets img"), cell.locator(".noUi-target")
    assert picture.get_attribute("alt") == "step 0"
    slider.scroll_into_view_if_needed()
    track = slider.bounding_box()
    notebook.page.mouse.click(track["x"] + track["width"] - 1, track["y"] + track["height"] / 2)
    notebook.wait_for(lambda: picture.get_attribute("alt") == "step 2")


def test_the_stop_button_ends_a_hang_with_its_report(notebook):
    cell = "missed-meeting"
    notebook.write(cell, "%%ranks 2 --timeout 900\nimport time\nprint('here')\ntime.sleep(900)")
    count = notebook.start(cell)
    notebook.wait_for(lambda: notebook.cell(cell)[1].inner_text().count("] here") == 2)
    notebook.press("interrupt")
    output = notebook.wait(cell, count)
    assert "Interrupted." in output and "time.sleep(900)" in output
    notebook.write(cell, "1 + 1")  # its error is meant
    assert "2" in notebook.run(cell)
