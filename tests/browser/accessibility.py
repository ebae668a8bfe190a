"""What axe finds on a page that is open in Chromium, JupyterLab's own apart."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

OURS = ".jp-OutputArea-output, .jp-RenderedMarkdown"  # what a page says, and what its cells show
NOT_OURS = ".noUi-handle"  # of a slider of ipywidgets 8, which gives it no name
# axe's names of what JupyterLab 4.6 itself gets wrong around them, on every page.
JUPYTERLABS_OWN = {
    "aria-allowed-attr",  # the debugger's button
    "aria-input-field-name",  # the cells' editors, and NOT_OURS
    "aria-required-children",  # the list of cells
    "button-name",  # the buttons that fold a section
    "label-title-only",  # the page's name
    "region",  # the links that skip to a part of the page
}
# Whether elements lie in OURS; a path into a shadow tree, where none of ours is, begins with "['".
BELONG = """([places, ours, not_ours]) => places.map(place => {
    const element = place.startsWith("['") ? null : document.querySelector(place);
    return !!element?.closest(ours) && !element.matches(not_ours);
})"""


def findings(page: Page) -> tuple[list[str], dict[str, list[str]]]:
    """Ours, as "rule: element"; and JupyterLab's, by rule."""
    result = violations(page)
    places = [str(node["target"][0]) for _, node in result]
    ours, others = [], defaultdict(list)
    belong = page.evaluate(BELONG, [places, OURS, NOT_OURS])
    for (rule, node), is_ours in zip(result, belong, strict=True):
        if is_ours:
            ours.append(in_words(rule, node))
        else:
            others[rule].append(node["html"])
    return ours, dict(others)


def book_findings(page: Page) -> list[str]:
    """The same of a page of the book, where all is ours."""
    return [in_words(rule, node) for rule, node in violations(page)]


def violations(page: Page) -> list[tuple[str, dict]]:
    """Each rule with an element that breaks it."""
    from axe_playwright_python.sync_playwright import Axe

    result = Axe().run(page).response["violations"]
    return [(violation["id"], node) for violation in result for node in violation["nodes"]]


def in_words(rule: str, node: dict) -> str:
    """A finding as "rule: element"."""
    return f"{rule}: {node['html']} {node['failureSummary']}"
