"""Search in the book without a server: one file with all texts, and a few lines that look there.

The file is as large as the whole text, so a page loads it when its reader goes to the search field.
"""

import json
import re

import nbformat

from tools.book.page import NOTE_ID, PROGRESS, title

SCRIPT = "search.js"
MAX_RESULTS = 20  # results to show
# Without JavaScript there is no search, so the form is hidden until book.js has run.
FORM = (
    '<form role="search" hidden><input type="search" id="book-search" name="search" '
    'placeholder="Search" aria-label="Search in all pages" autocomplete="off">'
    '<ul id="book-results"></ul><p id="book-count" role="status"></p></form>\n'
)
# Every word must be there. Each section is listed once, those with all words in a heading first.
# all_reduce also finds all-reduce. The words travel in the address, so that they are still there on
# the page found.
FINDS = """
const field = document.getElementById('book-search');
const results = document.getElementById('book-results');
const count = document.getElementById('book-count');
const plain = text => text.toLowerCase().replace(/-/g, '_');
function find() {
  const words = plain(field.value).split(/\\s+/).filter(word => word);
  const has = text => words.every(word => plain(text).includes(word));
  const found = words.length === 0 ? []
    : TEXTS.filter(one => has(one.heading + ' ' + one.text)).filter((one, place, all) =>
      !place || one.page !== all[place - 1].page || one.heading !== all[place - 1].heading);
  found.sort((a, b) => has(b.heading) - has(a.heading));
  results.replaceChildren(...found.slice(0, MOST).map(one => {
    const link = document.createElement('a');
    const typed = encodeURIComponent(field.value);
    link.href = one.page + '.html?search=' + typed + '#cell-id=' + one.cell;
    link.textContent = one.title + ': ' + one.heading;
    const item = document.createElement('li');
    item.append(link);
    return item;
  }));
  count.textContent = !words.length ? '' : !found.length ? 'Nothing found.'
    : found.length > MOST ? MOST + ' of ' + found.length + ' places' : '';
}
field.value ||= new URLSearchParams(location.search).get('search') ?? '';
field.addEventListener('input', find);
field.addEventListener('focus', find);
if (document.activeElement === field) find();
field.form.addEventListener('submit', event => {
  event.preventDefault();
  results.querySelector('a')?.click();
});
"""


def entries(stem: str, notebook: nbformat.NotebookNode, hidden: list[str]) -> list[dict[str, str]]:
    """The page's texts and programs by section; the cells in `hidden` are left out."""
    heading, sections = title(notebook), []
    for cell in notebook.cells:
        if cell.id in hidden or cell.id == NOTE_ID or PROGRESS.fullmatch(cell.source):
            continue
        is_text = cell.cell_type == "markdown"
        for part in re.split(r"(?m)^(?=##+ )", cell.source) if is_text else [cell.source]:
            if is_text and (heading_match := re.match(r"##+ (.*)", part)):
                heading = heading_match[1].replace("`", "")
            if text := " ".join(part.split()):
                place = {"page": stem, "title": title(notebook), "cell": cell.id}
                sections.append(place | {"heading": heading, "text": text})
    return sections


def search_index(sections: list[dict[str, str]]) -> str:
    """The script with all texts in it."""
    texts = json.dumps(sections, ensure_ascii=False).replace("</", "<\\/")
    return f"const MOST = {MAX_RESULTS};\nconst TEXTS = {texts};\n{FINDS}"
