"""The links that lead out of the workbook: written as https, and answered where there is a network.

A site that has moved a page is seen here before a reader sees it. Without a network the links are
not asked, and the end of the run says so (`network` in conftest.py).
"""

import http.server
import re
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.test_layout import CHECKOUT, NOTEBOOKS, name
from tests.test_pages import texts

PAGES = [*NOTEBOOKS, CHECKOUT / "README.md"]
LIMIT = 20  # seconds for one request
AT_ONCE = 8  # requests; more from one address look like an attack to some sites
HERE = {"localhost", "127.0.0.1"}  # a JupyterLab or TensorBoard of the reader's own
# some sites refuse Python's own name
HEADERS = {"User-Agent": "Mozilla/5.0 (ddp-workbook; checks the links of its pages)"}


def links(text: str) -> list[str]:
    """Every address in a Markdown text that leads to another machine, as it is written there."""
    found = re.findall(r"https?:[^\s)>\]\"'`|]*", text)
    return [link for link in found if urlsplit(link).hostname not in HERE]


def links_of(page: Path) -> list[str]:
    """Every outward link of a page, in its order."""
    return [link for text in texts(page) for link in links(text)]


def is_well_formed(link: str) -> bool:
    """https, a host with a domain, and no punctuation that belongs to the sentence."""
    return bool(re.fullmatch(r"https://([\w-]+\.)+[a-z]{2,}(/[\w./~%+=&?#@:,-]*)?(?<![.,:])", link))


def refusal(link: str) -> str:
    """Why a link leads nowhere: a status of 400 or more, or no answer; "" if all is well.

    HEAD is tried first because it moves no page, then GET, because some sites know no HEAD.
    """
    why = ""
    for method in ("HEAD", "GET"):
        request = urllib.request.Request(link, method=method, headers=HEADERS)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT):
                return ""  # urlopen has followed redirections, and raises from 400 on
        except urllib.error.HTTPError as error:
            error.close()
            why = f"{error.code} {error.reason}"
        except OSError as error:  # URLError and TimeoutError are OSErrors
            why = str(error)
    return why


def refusals(all_links: list[str]) -> dict[str, str]:
    """Link -> why it leads nowhere, for those that do not answer."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = dict(zip(all_links, pool.map(refusal, all_links), strict=True))
    return {link: why for link, why in told.items() if why}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_outward_links_are_well_formed(page):
    """A link with a typing error, or one that is not encrypted, is named."""
    assert [link for link in links_of(page) if not is_well_formed(link)] == []


@pytest.mark.parametrize("page", NOTEBOOKS, ids=name)
def test_what_to_read_on_has_links(page):
    """Each line of a list under `## Read on` leads somewhere."""
    for text in texts(page):
        _, heading, after = text.partition("## Read on")
        if heading:
            items = re.findall(r"(?m)^[-*] .*$", after.partition("\n#")[0])
            assert items and all(map(links, items))


@pytest.mark.network
def test_every_outward_link_answers():
    """Each one once, however many pages name it."""
    assert refusals(sorted({link for page in PAGES for link in links_of(page)})) == {}


# The tests above, tested


def test_what_counts_as_a_link():
    """With and without Markdown around it; not what leads to the reader's own machine."""
    text = "[a](https://a.org/x?y=1#z), <https://b.org> `https://c.org/d_e`; http://localhost:8888"
    assert links(text) == ["https://a.org/x?y=1#z", "https://b.org", "https://c.org/d_e"]


@pytest.mark.parametrize(
    ("link", "well"),
    {
        "https://docs.pytorch.org/docs/stable/ddp.html#x": True,
        "https://arxiv.org/abs/2006.15704": True,
        "http://arxiv.org/abs/2006.15704": False,
        "https:/arxiv.org": False,
        "https://arxiv/abs/2006.15704": False,
        "https://arxiv.org/abs/2006.15704.": False,
    }.items(),
)
def test_what_is_well_formed(link, well):
    """https and a whole address, without the full stop of the sentence."""
    assert is_well_formed(link) is well


class Site(http.server.BaseHTTPRequestHandler):
    """/moved leads to /page; /page knows no HEAD; nothing else exists."""

    def do_HEAD(self):
        self.send_error(405)

    def do_GET(self):
        if self.path == "/moved":
            self.send_response(301)
            self.send_header("Location", "/page")
            self.end_headers()
        elif self.path == "/page":
            self.send_response(200)
            self.end_headers()
        else:
            self.send_error(404)

    def log_message(self, *args):
        """Say nothing in the output of the tests."""


@pytest.fixture
def site(monkeypatch):
    """Address of a site on this machine."""
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_links_that_lead_nowhere_are_named_with_the_reason(site):
    """A page that has moved is fine, one that is gone or whose host does not answer is not."""
    nobody = "http://127.0.0.1:1/"
    told = refusals([f"{site}/page", f"{site}/moved", f"{site}/gone", nobody])
    assert told.keys() == {f"{site}/gone", nobody}
    assert told[f"{site}/gone"] == "404 Not Found"
    assert "refused" in told[nobody]
