"""How the book looks: the contents at the side, a page on a phone, and a page on paper."""

from manyranks.rank_colours import RANK_COLOURS, contrast, for_text

CONTENTS = """
.book-contents { font: 0.95rem/1.5 system-ui, sans-serif; color: #212121 }
.book-contents ul { list-style: none; padding-left: 0; margin: 0.3em 0 }
.book-contents ul ul { padding-left: 1em }
.book-contents li { margin: 0.15em 0 }
.book-contents a[aria-current] { font-weight: 600 }
.book-contents input { width: 100%; box-sizing: border-box; font: inherit; padding: 0.3em;
  margin-top: 0.4em }
.book-contents summary { cursor: pointer; margin: 0.4em 0 }
nav.book-contents { padding: 1rem }
@media screen and (min-width: 80rem) {
  nav.book-contents { position: fixed; top: 0; bottom: 0; left: 0; width: 17rem;
    overflow-y: auto; box-sizing: border-box; border-right: 1px solid #ccc }
  body.jp-Notebook { margin-left: 18rem }
}
@media print { nav.book-contents, .book-contents form { display: none } }
"""
# nbconvert has the style of JupyterLab: prompts and colours of code are too faint for axe, links
# are known by their colour alone, code that a cell shows has the font of a text, lines break in the
# middle of a word, and paper cuts code off at the right.
PAGE = """
.jp-Notebook .jp-Cell .jp-InputPrompt, .jp-Notebook .jp-Cell .jp-OutputPrompt {
  color: #616161 !important; opacity: 1 !important }
body { --jp-mirror-editor-comment-color: #2f6f6f; --jp-mirror-editor-keyword-color: #007000;
  --jp-mirror-editor-number-color: #007000; --jp-mirror-editor-operator-color: #8a10e0 }
.jp-RenderedHTMLCommon a:not(.anchor-link) { text-decoration: underline }
.jp-OutputArea-output pre { word-break: normal !important; overflow-wrap: anywhere;
  font-family: var(--jp-code-font-family); font-size: var(--jp-code-font-size) }
details.answer { font-family: var(--jp-content-font-family); color: #212121;
  font-size: var(--jp-content-font-size1); margin: 0.5em 0 }
details.answer > summary { cursor: pointer; font-weight: 600;
  padding: 0.3em 0.3em 0.3em var(--jp-cell-prompt-width) }
@media screen {  /* what scrolls is what a keyboard reaches */
  .jp-Cell-inputWrapper { overflow-x: auto }
  .jp-RenderedMarkdown { overflow: visible !important }
}
@media screen and (max-width: 50rem) {
  body.jp-Notebook { padding: 0.5rem }
  details.answer > summary { padding-left: 0 }
  .ddpw-diff { min-width: 44rem }  /* two programs side by side: its output scrolls */
  .highlight pre { white-space: pre-wrap !important; overflow-wrap: anywhere }
  .jp-RenderedMarkdown { padding-left: 0; padding-right: 0 }
}
@media print {
  @page { margin: 14mm }
  body.jp-Notebook { padding: 0 }
  main { zoom: 0.8 }
  .highlight pre { white-space: pre-wrap !important; overflow-wrap: anywhere }
  .highlight, .jp-InputArea-editor, .jp-OutputArea-output { overflow: visible !important }
  .jp-OutputArea-output table { font-size: 80% }
  img, tr, summary, .ddpw-frame { break-inside: avoid }
  h1, h2, h3 { break-after: avoid }
  details.answer:not([open]) { display: none }
}
"""
# The list of pages is unfolded where it stands at the side. On paper nothing can be clicked, so
# hints and the like are printed open; an answer that the reader left folded is not printed.
SCRIPT = """
const pages = document.querySelector('details.book-pages');
if (matchMedia('(min-width: 80rem)').matches) pages.open = true;
let unfolded = [];
addEventListener('beforeprint', () => {
  unfolded = [...document.querySelectorAll('main details:not([open]):not(.answer)')];
  for (const one of unfolded) one.open = true;
});
addEventListener('afterprint', () => { for (const one of unfolded) one.open = false; });
"""


def rank_names() -> str:
    """Rules for the names of ranks in outputs: darker than on pages that may also be dark."""
    return "".join(
        f'.jp-OutputArea-output span[style*="rgb({",".join(map(str, parts(text)))})"] '
        f"{{ color: {dark_enough(text)} !important }}\n"
        for text in map(for_text, RANK_COLOURS)
    )


def dark_enough(colour: str) -> str:
    """The colour, mixed with black until small text in it can be read on white."""
    shares = (share / 100 for share in range(100, 0, -1))
    mixes = (
        "#" + "".join(f"{round(share * part):02x}" for part in parts(colour)) for share in shares
    )
    return next(mix for mix in mixes if contrast(mix, "#ffffff") >= 4.6)


def parts(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of "#rrggbb"."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
