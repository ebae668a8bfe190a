"""The book in Chromium with the network off: read, search, copy, print; axe on every page.

A push looks at a small book with one real page, `--all` at all pages, executed for it.
"""

import copy

import pytest

from ddp_workbook.page.pages import FURTHER, place_of
from tests.browser.accessibility import book_findings
from tests.browser.lab import CHROMIUM_OPTIONS, WIDTH
from tests.conftest import chromium
from tests.small_book import write_small
from tools import book
from tools.book.__main__ import write_book
from tools.book.frame import CSS, JS
from tools.book.running import execute_page, run_all

pytestmark = pytest.mark.browser
SMALL, REAL = "01_greeting", "05_further_ring"  # the real page is short, and has a slider
FORMS = ("with", "without")  # answers
FRONT_BYTES = 400_000  # the first page with all that it loads
PHONE = 390  # pixels
LOOKS = [
    (WIDTH, "light"),
    (WIDTH // 2, "dark"),
    (PHONE, "light"),
    (320, "dark"),
]  # half: 200 % zoom
WIDER = """() => [...document.querySelectorAll('main *')].filter(element => {
    if (element.getBoundingClientRect().right <= document.documentElement.clientWidth + 1)
        return false;
    for (let one = element; one !== document.body; one = one.parentElement)
        if (getComputedStyle(one).overflowX !== 'visible') return false;
    return true;
}).map(element => element.outerHTML.slice(0, 200))"""
# A card's small picture is left out of what is read aloud: the page has it, with its text.
NO_ALT = """() => [...document.images]
    .filter(image => !image.alt.trim() && !image.matches('.thumb'))
    .map(image => image.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def browser():
    """Chromium, without a network."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as run:
        chromium_browser = run.chromium.launch(executable_path=chromium(), args=CHROMIUM_OPTIONS)
        yield chromium_browser
        chromium_browser.close()


@pytest.fixture
def reader(browser):
    """`open(path)` gives its page; what pages asked the network for, and errors, in `wrong`."""
    context = browser.new_context(viewport={"width": WIDTH, "height": 900}, offline=True)
    wrong = []

    def note_request(request):
        if not request.url.startswith(("file:", "data:")):
            wrong.append(request.url)

    context.on("request", note_request)
    context.on("weberror", lambda error: wrong.append(str(error.error)))

    def open_page(path, width=WIDTH, theme="light", motion="no-preference"):
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme, reduced_motion=motion)
        page.goto(path.as_uri())
        return page

    yield open_page
    context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Folders with two pages, in both forms."""
    checkout = tmp_path_factory.mktemp("checkout")
    notebooks = book.copy_layout(checkout)
    write_small(checkout)
    executed_pages = {stem: execute_page(notebooks / place_of(stem)) for stem in (SMALL, REAL)}
    assert [book.errors(page) for page in executed_pages.values()] == [[], []]
    return {form: write_form(form, executed_pages, notebooks, checkout) for form in FORMS}


def write_form(form, ran, notebooks, folder):
    """The folder of a book in this form."""
    place = folder / form
    place.mkdir()
    pages = copy.deepcopy(ran).items()
    assert write_book(place, pages, without_answers=form == "without", notebooks=notebooks) == []
    return place


def look(page):
    """What is wrong with an open page, for eyes and for screen readers."""
    assert book_findings(page) == []
    assert page.evaluate(NO_ALT) == []
    assert page.evaluate(WIDER) == []


@pytest.mark.parametrize(("width", "theme"), LOOKS)
@pytest.mark.parametrize("stem", ["index", "404", "tools", SMALL, REAL])
def test_nothing_is_wrong_on_a_page(small, reader, stem, width, theme):
    """axe, alt texts, nothing cut off at the right; the fixture saw no request to the network."""
    for form in FORMS if width == WIDTH else ["without"]:
        look(reader(small[form] / f"{stem}.html", width, theme))


def test_the_contents_lead_to_the_other_page(small, reader):
    """At the side they are open; on a phone a click opens them."""
    page = reader(small["with"] / "index.html")
    page.click("h3 >> text=Meeting & greeting")
    page.click("nav >> text=The ring")
    assert page.inner_text("nav [aria-current]") in page.inner_text("h1")
    page = reader(small["with"] / f"{SMALL}.html", PHONE)
    link = page.locator("nav.book-contents >> text=The ring")
    assert not link.is_visible()
    page.click("summary >> text=All pages")
    link.click()
    page.wait_for_url(f"**/{REAL}.html")


def test_the_headings_at_the_side_lead_to_their_places(small, reader):
    page = reader(small["with"] / f"{SMALL}.html")
    page.click("nav.page-contents >> text=Next")
    assert -1 <= page.locator("h2", has_text="Next").bounding_box()["y"] < 900
    assert page.url.endswith("#Next")


def test_code_is_copied_without_asking(small, reader):
    """The page has no permission for the clipboard; the text arrives where somebody pastes it."""
    page = reader(small["with"] / f"{SMALL}.html")
    page.locator(".highlight", has_text="hello from a cell").get_by_role("button").click()
    assert page.get_by_role("button", name="Copied").count() == 1
    page.focus("#book-search")
    page.keyboard.press("Control+v")
    assert page.input_value("#book-search") == "print('hello from a cell')"


def shown_at(page):
    """The cell, and the words beside the lanes, that the recorded run shows now."""
    scene = page.locator(".scene:visible")
    values = scene.locator(".value:visible").all_inner_texts()
    return scene.locator("pre.cell b").inner_text(), values, scene.locator(".outcome").inner_text()


def test_the_recorded_run_moves_by_keyboard(small, reader):
    """Play and Pause, arrows on the slider, and the report at its end."""
    page = reader(small["with"] / "index.html")
    page.get_by_role("button", name="Pause").press("Enter")
    page.locator(".run input").focus()
    page.keyboard.press("Home")
    assert shown_at(page)[:2] == ("%%ranks 4", [])
    page.get_by_role("button", name="Play").press("Enter")
    page.locator(".run .value:visible").first.wait_for()
    page.get_by_role("button", name="Pause").press("Enter")
    page.locator(".run input").focus()
    page.keyboard.press("End")
    cell, values, report = shown_at(page)
    assert cell.endswith("--timeout 3") and values == ["waits"] * 3 + ["sleeps"]
    assert "never by rank 3" in report
    assert "rank 3 never comes" in page.locator(".run input").get_attribute("aria-valuetext")


def test_the_recorded_run_stands_still_for_who_wants_it(small, reader):
    """A scene is complete, and a button goes to the next one."""
    page = reader(small["with"] / "index.html", motion="reduce")
    first = shown_at(page)
    assert first[1] == ["x = 6.0"] * 4 and "ended in" in first[2]
    page.wait_for_timeout(300)
    assert shown_at(page) == first
    page.get_by_role("button", name="Next").click()
    assert "never by rank 3" in shown_at(page)[2]
    page.get_by_role("button", name="Next").click()
    assert shown_at(page) == first


def test_all_can_be_read_without_javascript(small, browser):
    """Both scenes of the recorded run, the lists of pages and headings, and folded answers."""
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto((small["without"] / "index.html").as_uri())
    text = page.inner_text("main")
    assert "ended in" in text and "never by rank 3" in text and "doctor" in text
    assert not page.locator(".controls").is_visible() and not page.locator(".top form").is_visible()
    page.goto((small["without"] / f"{SMALL}.html").as_uri())
    for summary, words in (("All pages", "The ring"), ("Show what happens", "nobody knew")):
        assert not page.get_by_text(words).first.is_visible()
        page.locator("summary", has_text=summary).first.click()
        assert page.get_by_text(words).first.is_visible()
    context.close()


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("greeting", f"{SMALL}.html?search=greeting#cell-id=title"),
        ("Hello CELL", f"{SMALL}.html?search=Hello%20CELL#cell-id=hello"),
        ("reduce_scatter", f"{REAL}.html?search=reduce_scatter#cell-id="),
    ],
)
def test_search_leads_to_the_place_and_keeps_the_words(small, reader, words, place):
    """By keyboard alone: Enter opens the first result, and so does Tab."""
    for key in ("Enter", "Tab"):
        page = reader(small["with"] / "index.html")
        page.focus("#book-search")
        page.keyboard.type(words)
        page.locator("#book-results a").first.wait_for()
        page.keyboard.press(key)
        if key == "Tab":
            page.keyboard.press("Enter")
        page.wait_for_url(lambda url: place in url)
        target = page.url.partition("#")[2]
        box = page.locator(f'[id="{target}"]').bounding_box()
        assert -1 <= box["y"] < 900
        assert page.input_value("#book-search") == words


def test_search_says_that_there_is_nothing(small, reader):
    page = reader(small["with"] / f"{SMALL}.html")
    page.fill("#book-search", "zebra")
    page.get_by_text("Nothing found.").wait_for()
    page.fill("#book-search", "")
    assert page.inner_text("#book-count") == ""


def test_search_finds_no_answer_in_the_form_without(small, reader):
    for form, result in (("with", "#book-results a"), ("without", "text=Nothing found.")):
        page = reader(small[form] / f"{SMALL}.html")
        page.fill("#book-search", "nobody knew")
        page.locator(result).wait_for()


def test_an_answer_opens_by_keyboard(small, reader):
    """The code that the question is about is there before."""
    page = reader(small["without"] / f"{SMALL}.html")
    answer = page.get_by_text("It printed two words, which nobody knew.")
    assert page.locator("pre", has_text="print('the', 'answer')").is_visible()
    assert not answer.is_visible()
    page.locator("summary", has_text="Show what happens").first.focus()
    page.keyboard.press("Enter")
    assert answer.is_visible()
    assert not page.get_by_text("hint('mean_over_ranks')").is_visible()


def test_paper_has_all_pictures_and_neither_contents_nor_search(small, reader):
    """Every frame of a stepper stands on the paper; nothing is cut off at its right."""
    page = reader(small["with"] / f"{REAL}.html")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 900})  # a sheet of A4
    assert page.locator("nav:visible, form:visible, button:visible").count() == 0
    assert page.evaluate(WIDER) == []
    frames = page.locator(".ddpw-frame img").all()
    boxes = [frame.bounding_box() for frame in frames]
    assert len(boxes) > 2
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 720 for box in boxes)
    assert len({box["y"] for box in boxes}) == len(boxes)


def test_paper_has_hints_and_solutions_open(small, reader, tmp_path):
    """Answers that a reader left folded are not printed; afterwards all is folded as before."""
    pypdf = pytest.importorskip("pypdf")
    page = reader(small["with"] / f"{REAL}.html")
    closed = "() => document.querySelectorAll('main details:not([open])').length"
    assert page.evaluate(closed) > 0
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.left = ({closed})() }})")
    before = page.evaluate(closed)
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert page.evaluate("window.left") == 0
    assert page.evaluate(closed) == before
    sheets = pypdf.PdfReader(tmp_path / "page.pdf").pages
    text = "\n".join(sheet.extract_text() for sheet in sheets)
    assert len(sheets) >= 2 and "One solution" in text and "All pages" not in text


@pytest.mark.release("whole pages in a browser")
def test_every_page_of_the_book(tmp_path, reader):
    """All of them, executed: links, axe, alt texts, wide tables, in both forms, also on a phone."""
    runs = dict(run_all(book.NOTEBOOKS, tmp_path / "kept"))
    assert [run.errors for run in runs.values() if run.errors] == []
    executed_pages = {stem: run.notebook for stem, run in runs.items()}
    for form in FORMS:
        place = write_form(form, executed_pages, book.ROOT / "notebooks", tmp_path)
        for path in sorted(place.glob("*.html")):
            for width, theme in LOOKS:
                page = reader(path, width, theme)
                look(page)
                page.close()
        thumbs = (place / "pictures").glob("*.svg")
        files = [place / "index.html", place / CSS, place / JS]
        files += [path for path in thumbs if FURTHER not in path.stem]
        assert sum(path.stat().st_size for path in files) < FRONT_BYTES
