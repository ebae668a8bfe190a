"""Search in the book without a server: one file with all texts, and a few lines that look there."""

import json
import re

import nbformat

from tools.book.page import NOTE_ID, title

SCRIPT = "search.js"
LONGEST = 20  # results to show
FORM = (
    '<form role="search" onsubmit="return false"><input type="search" id="book-search" '
    'placeholder="Search" aria-label="Search in all pages" autocomplete="off">'
    '<ul id="book-results" aria-live="polite"></ul></form>\n'
    f'<script src="{SCRIPT}" defer></script>\n'
)
# Every word must be there; results with all words in a heading come first.
FINDS = """
const field = document.getElementById('book-search');
const results = document.getElementById('book-results');
field.addEventListener('input', () => {
  const words = field.value.toLowerCase().split(/\\s+/).filter(word => word);
  const has = text => words.every(word => text.toLowerCase().includes(word));
  const found = words.length === 0 ? []
    : TEXTS.filter(one => has(one.heading + ' ' + one.text));
  found.sort((a, b) => has(b.heading) - has(a.heading));
  results.replaceChildren(...found.slice(0, MOST).map(one => {
    const link = document.createElement('a');
    link.href = one.page + '.html#cell-id=' + one.cell;
    link.textContent = one.title + ': ' + one.heading;
    const item = document.createElement('li');
    item.append(link);
    return item;
  }));
  if (words.length && !found.length) results.textContent = 'Nothing found.';
});
"""


def entries(stem: str, notebook: nbformat.NotebookNode, hidden: list[str]) -> list[dict[str, str]]:
    """The page's texts and programs by section; the cells in `hidden` are left out."""
    heading, found = title(notebook), []
    for cell in notebook.cells:
        if cell.id in hidden or cell.id == NOTE_ID:
            continue
        is_text = cell.cell_type == "markdown"
        for part in re.split(r"(?m)^(?=##+ )", cell.source) if is_text else [cell.source]:
            if is_text and (named := re.match(r"##+ (.*)", part)):
                heading = named[1]
            if text := " ".join(part.split()):
                place = {"page": stem, "title": title(notebook), "cell": cell.id}
                found.append(place | {"heading": heading, "text": text})
    return found


def search_index(found: list[dict[str, str]]) -> str:
    """The script with all texts in it."""
    texts = json.dumps(found, ensure_ascii=False).replace("</", "<\\/")
    return f"const MOST = {LONGEST};\nconst TEXTS = {texts};\n{FINDS}"
