"""JupyterLab as `make lab` starts it, in a real Chromium: open a notebook, Run All, look.

    .venv/bin/python -m tests.browser.lab NOTEBOOK OUT.png

runs the notebook and writes two pictures of the whole page: OUT.png in JupyterLab's light theme and
OUT-dark.png in its dark one. The exit code is 0 only if every cell ran, none failed that was not
meant to, and no widget is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.server import server
from tests.conftest import chromium
from tools.set_up import ROOT

if TYPE_CHECKING:  # a package for developers; without it all tests can still be collected
    from playwright.sync_api import Locator, Page

WIDTH, TALLEST = 1280, 16_000  # pixels; Chromium cuts pictures that are higher
CHROMIUM_OPTIONS = [
    "--no-sandbox",  # a container's root has no user namespaces to make one from
    "--disable-dev-shm-usage",  # /dev/shm is small in containers
    "--disable-gpu",
    "--no-proxy-server",  # the page is on loopback
    "--disable-background-networking",
]

# JupyterLab's own model of the notebook (the server exposes the app to the page).
STATE = """() => {
    const panel = window.jupyterapp.shell.currentWidget;
    const code = panel.content.widgets.filter(
        cell => cell.model.type === 'code' && cell.model.sharedModel.source.trim());
    const running = cell => cell.model.executionState === 'running';
    const kernel = panel.sessionContext.session?.kernel?.status;
    return {
        cells: code.length,
        done: code.filter(cell => cell.model.executionCount != null && !running(cell)).length,
        started: kernel === 'busy'
            || code.some(cell => cell.model.executionCount != null || running(cell)),
        idle: kernel === 'idle',
        errors: code.flatMap(cell => cell.model.outputs.toJSON()
            .filter(output => output.output_type === 'error'
                && !(cell.model.getMetadata('tags') ?? []).includes('raises-exception'))
            .map(output => [`${output.ename}: ${output.evalue}`, ...output.traceback].join('\\n'))),
    };
}"""
# The dot that shows an idle kernel comes too early: Run All then asks which kernel to take.
READY = """() => {
    if (document.querySelector('.jp-Dialog')) return true;
    const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
    return context && context.isReady && !context.hasNoKernel
        && context.session?.kernel?.status === 'idle';
}"""
INDEX = """id => window.jupyterapp.shell.currentWidget.content.widgets.findIndex(
    cell => cell.model.id === id)"""
RUNS = """index => {
    const model = window.jupyterapp.shell.currentWidget.content.widgets[index].model;
    return [model.executionCount, model.executionState === 'running'];
}"""
SOURCE = """index => window.jupyterapp.shell.currentWidget.content.widgets[index]
    .model.sharedModel.source"""
IS_LOADED = "() => window.jupyterapp?.shell.currentWidget?.context?.isReady"
TEXT = "() => window.jupyterapp.shell.currentWidget.context.model.toString()"
IS_SAVED = "() => !window.jupyterapp.shell.currentWidget.context.model.dirty"
SHUT_DOWN = "() => window.jupyterapp.shell.currentWidget.sessionContext?.shutdown()"
THEME = """theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"""
BOTTOM = """() => {
    document.querySelector('.jp-WindowedPanel-outer').scrollTop = 0;
    const cells = [...document.querySelectorAll('.jp-Notebook .jp-Cell')];
    return Math.ceil(cells.pop().getBoundingClientRect().bottom);
}"""
UNRENDERED_WIDGETS = ".jp-OutputArea-output >> text=/Error displaying widget|Loading widget/"


THEMES = ("JupyterLab Light", "JupyterLab Dark")


class Document:
    """Something that is open in JupyterLab, in a browser tab of its own."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        page.goto(address, wait_until="domcontentloaded")

    def menu(self, name: str, command: str) -> None:
        """Choose a line of a menu."""
        self.page.click(f'#jp-MainMenu >> text="{name}"')
        self.page.click(f'.lm-Menu li[data-command="{command}"]')

    def wait_for(self, condition: Callable[[], bool], timeout: float = 600) -> None:
        """Wait until this is so."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"it is not so after {timeout} s")
            self.page.wait_for_timeout(50)

    def agree(self) -> None:
        """Answer the question that is laid over the page with its coloured button."""
        self.page.click(".jp-Dialog .jp-mod-accept")
        self.page.wait_for_selector(".jp-Dialog", state="detached")

    def save(self) -> None:
        """Ctrl + S; wait until it is on disk."""
        self.page.keyboard.press("ControlOrMeta+S")
        self.page.wait_for_function(IS_SAVED, timeout=600_000)

    def close(self) -> None:
        """Close the tab, and end the kernel behind it, if it has one."""
        self.page.evaluate(SHUT_DOWN)
        self.page.close()


class Editor(Document):
    """A file that is open in JupyterLab's editor."""

    def __init__(self, page: Page, address: str) -> None:
        super().__init__(page, address)
        page.wait_for_selector(".jp-FileEditor .cm-content", timeout=300_000)
        page.wait_for_function(IS_LOADED, timeout=300_000)  # the editor is there before its text is

    def text(self) -> str:
        """What the file holds, with the changes that are not saved."""
        return self.page.evaluate(TEXT)

    def write(self, text: str) -> None:
        """Put this in place of all that is there, by mouse and keyboard."""
        self.page.click(".jp-FileEditor .cm-content")
        self.page.keyboard.press("ControlOrMeta+A")
        self.page.keyboard.insert_text(text)
        self.wait_for(lambda: self.text() == text)


class Notebook(Document):
    """A notebook that is open in JupyterLab."""

    def __init__(self, page: Page, address: str) -> None:
        super().__init__(page, address)
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=300_000)
        page.wait_for_function(READY, timeout=300_000)
        if self.faults():  # such as: which kernel shall it be?
            raise RuntimeError("JupyterLab asks: " + " ".join(self.faults()))

    def run_all(self, timeout: float = 600) -> None:
        """Run > Run All Cells, by the menu as a reader does, and wait for the last cell."""
        deadline = time.monotonic() + timeout
        for _ in range(5):  # a click just after opening gets lost now and then
            self.menu("Run", "runmenu:run-all")
            with contextlib.suppress(TimeoutError):
                self._wait(lambda state: state["started"], time.monotonic() + 5)
                break
        self._wait(lambda state: state["idle"] and state["done"] == state["cells"], deadline)

    def press(self, name: str) -> None:
        """Press a button of the notebook's toolbar: "interrupt" or "restart"."""
        self.page.click(f'.jp-NotebookPanel-toolbar [data-jp-item-name="{name}"] jp-button')

    def restart(self) -> None:
        """The button with the round arrow, and Restart in the question that follows."""
        self.press("restart")
        self.agree()
        self.page.wait_for_function(READY, timeout=300_000)

    def cell(self, name: str) -> tuple[int, Locator]:
        """Place and element of the cell with this id."""
        index = self.page.evaluate(INDEX, name)
        if index < 0:
            raise LookupError(f"there is no cell {name!r} on this page")
        return index, self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def source(self, name: str) -> str:
        """The cell's code."""
        return self.page.evaluate(SOURCE, self.cell(name)[0])

    def write(self, name: str, code: str) -> None:
        """Put `code` into the cell in place of what is there, by mouse and keyboard."""
        self.select(name)
        self.page.keyboard.press("ControlOrMeta+A")
        self.page.keyboard.insert_text(code)

    def select(self, name: str) -> None:
        """Click into the cell, and first on its three dots if it is folded."""
        _, cell = self.cell(name)
        cell.scroll_into_view_if_needed()
        folded = cell.locator(".jp-InputPlaceholder .jp-Placeholder-content")
        if cell.locator(".cm-content").count() == 0 and folded.count():
            folded.click()
        cell.locator(".cm-content").click()

    def run(self, name: str, timeout: float = 300) -> str:
        """Run one cell with Shift + Enter; what it then shows, as text."""
        count = self.start(name)
        return self.wait(name, count, timeout)

    def start(self, name: str) -> int | None:
        """Press Shift + Enter in the cell; the number it had before, for `wait`."""
        index, _ = self.cell(name)
        count, _ = self.page.evaluate(RUNS, index)
        self.select(name)
        self.page.keyboard.press("Shift+Enter")
        return count

    def wait(self, name: str, count: int | None, timeout: float = 300) -> str:
        """Wait until the cell, started when its number was `count`, has ended; what it shows."""
        index, cell = self.cell(name)
        end, state = time.monotonic() + timeout, (count, True)
        while state[0] in (count, None) or state[1]:
            if time.monotonic() > end:
                raise TimeoutError(f"cell {name!r} does not end")
            self.page.wait_for_timeout(50)
            state = self.page.evaluate(RUNS, index)
        self.page.wait_for_timeout(200)  # the output is drawn a moment later
        return "\n".join(cell.locator(".jp-OutputArea-output").all_inner_texts())

    def errors(self) -> list[str]:
        """The errors that cells show, with their tracebacks, other than those that are meant."""
        from nbconvert.filters import strip_ansi

        return [strip_ansi(error) for error in self.page.evaluate(STATE)["errors"]]

    def faults(self) -> list[str]:
        """What is wrong on the page itself: missing widgets, and questions laid over it."""
        widgets = self.page.locator(UNRENDERED_WIDGETS).count()
        questions = self.page.locator(".jp-Dialog, .Toastify__toast").all_inner_texts()
        return ["a widget is missing"] * widgets + questions

    def theme(self, name: str) -> None:
        """Settings > Theme, one of THEMES."""
        self.page.evaluate(THEME, name)
        light = str(name == THEMES[0]).lower()
        self.page.wait_for_selector(f"body[data-jp-theme-light={light}]", state="attached")

    def screenshot(self, path: Path | str) -> None:
        """Write a picture of all cells, from the first to the last."""
        for _ in range(2):  # the new size moves some lines
            bottom = self.page.evaluate(BOTTOM)
            height = max(900, min(bottom + 60, TALLEST))
            self.page.set_viewport_size({"width": WIDTH, "height": height})
            self.page.wait_for_timeout(600)
        box = self.page.locator(".jp-NotebookPanel").bounding_box()
        height = min(bottom + 20 - box["y"], TALLEST - 100)
        clip = {"x": box["x"], "y": box["y"], "width": box["width"], "height": height}
        self.page.screenshot(path=str(path), clip=clip)

    def _wait(self, condition, deadline: float) -> None:
        state = self.page.evaluate(STATE)
        while not condition(state):
            if time.monotonic() > deadline:
                raise TimeoutError(f"JupyterLab stands still at {state}")
            self.page.wait_for_timeout(100)
            state = self.page.evaluate(STATE)


@contextlib.contextmanager
def lab(root: Path) -> Iterator[Callable[..., Document]]:
    """JupyterLab at the folder `root`, and a browser; gives `open(path, kind=Notebook)`."""
    from playwright.sync_api import sync_playwright

    with server(root) as about, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_OPTIONS)

        def open_document(path: str, kind: type[Document] = Notebook) -> Document:
            page = browser.new_page(viewport={"width": WIDTH, "height": 900})
            # /doc is one document without side bar; reset forgets the workspace of the page before
            return kind(page, f"{about['url']}doc/tree/{path}?reset&token={about['token']}")

        yield open_document
        browser.close()


def main() -> int:
    """Run one notebook in its folder, without saving it, and write its two pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    path = options.notebook.resolve()
    root = ROOT if path.is_relative_to(ROOT) else path.parent
    dark = options.picture.with_stem(f"{options.picture.stem}-dark")
    with lab(root) as open_notebook:
        notebook = open_notebook(path.relative_to(root).as_posix())
        notebook.run_all()
        notebook.screenshot(options.picture)
        notebook.theme(THEMES[1])
        notebook.screenshot(dark)
        wrong = notebook.errors() + notebook.faults()
    print("\n".join(wrong) or f"{options.picture} and {dark}: every cell ran")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
