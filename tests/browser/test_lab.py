"""`make lab` as a reader meets it: a page behind a token, where an exercise can be done.

A push drives the browser through one exercise of the first notebook; `--all` also runs whole pages.
"""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from PIL import Image, ImageStat

from ddp_workbook.exercises.judging.catalogue import find
from tests.browser.lab import lab
from tests.browser.server import server
from tools import book, set_up

in_full = pytest.mark.release("whole pages in a browser")
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def status(address: str) -> int:
    """HTTP status of a GET, without following to a login page."""
    try:
        with NO_PROXY.open(address, timeout=300) as answer:
            return answer.status if "/login" not in answer.url else 403
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_page_is_behind_its_token_and_on_loopback_only(tmp_path):
    """A neighbour on a shared node can neither reach the page nor open it."""
    with server(tmp_path) as about:
        url, token = about["url"], about["token"]
        assert len(token) >= 32
        assert status(f"{url}api/contents?token={token}") == 200
        assert status(f"{url}api/contents") == 403
        assert status(f"{url}lab") == 403
        listening = {
            connection.laddr.ip
            for connection in psutil.Process(about["pid"]).net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}
        with socket.socket() as other, pytest.raises(OSError):
            other.settimeout(2)
            other.connect((own_address(), about["port"]))


def own_address() -> str:
    """An address of this machine that is not 127.0.0.1; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:  # no network at all: another address of loopback
            return "127.0.0.2"


def test_the_server_settings_of_a_reader_do_not_open_the_page(tmp_path, monkeypatch):
    """No token and all interfaces, in the reader's own configuration: neither is taken."""
    careless = "c.IdentityProvider.token = ''\nc.ServerApp.ip = '0.0.0.0'\n"
    (tmp_path / ".jupyter").mkdir()
    (tmp_path / ".jupyter/jupyter_server_config.py").write_text(careless)
    monkeypatch.setenv("HOME", str(tmp_path))
    with server(tmp_path) as about:
        assert about["token"]
        assert about["hostname"] == "127.0.0.1"
        assert status(f"{about['url']}api/contents") == 403


def test_the_first_page_is_the_first_notebook():
    """`make lab` names a notebook that exists, and passes its arguments on."""
    line, env = set_up.command_line("lab", ["--port", "9000"])
    settings = json.loads((book.ROOT / "tools/lab/jupyter_server_config.json").read_text())
    first = settings["LabApp"]["default_url"].removeprefix("/lab/tree/")
    assert (book.ROOT / first).is_file()
    assert line[-2:] == ["--port", "9000"]
    assert env["PATH"].split(os.pathsep)[0].startswith(str(book.ROOT / ".venv"))


@pytest.mark.parametrize("words", [["--port", "9000"], ["--port=9000"], ["--ServerApp.port=9000"]])
def test_a_port_that_the_reader_names_is_taken_or_refused(words):
    """JupyterLab would take the next free one, where a tunnel to 9000 does not end."""
    assert "--ServerApp.port_retries=0" in set_up.command_line("lab", words)[0]
    assert "--ServerApp.port_retries=0" not in set_up.command_line("lab", ["--no-browser"])[0]


def test_a_port_that_is_taken_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line, env = set_up.command_line("lab", [f"--port={port}", "--no-browser"])
        line[0] = sys.executable
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert f"port {port} " in done.stderr


@pytest.fixture(scope="module")
def open_notebook(tmp_path_factory):
    """One JupyterLab and one browser for all notebooks, at a copy of their folders."""
    pytest.importorskip("playwright")
    root = tmp_path_factory.mktemp("checkout")
    book.copy_layout(root)
    with lab(root) as open_notebook:
        yield open_notebook


# The first page, and those with widgets, which only a browser shows. That the cells of the others
# run is nbclient's to tell (test_notebooks.py), in a third of the time.
IN_A_BROWSER = [
    path
    for path in book.NOTEBOOKS
    if path.stem.startswith("00") or "stepper" in path.read_text(encoding="utf-8")
]


@in_full
@pytest.mark.browser
@pytest.mark.parametrize("path", IN_A_BROWSER, ids=lambda path: path.stem)
def test_run_all_in_a_real_page(open_notebook, path):
    """Run > Run All Cells: no error, no missing widget, no question over the page."""
    notebook = open_notebook(f"notebooks/{path.name}")
    notebook.run_all()
    assert notebook.errors() == []
    assert notebook.faults() == []


WRONG = """%%exercise mean_over_ranks
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.all_reduce(total)
    return total.item()
"""


@pytest.mark.browser
def test_an_exercise_wrongly_and_then_rightly(open_notebook):
    """As a reader does it: type, run, read, open a hint, type again."""
    notebook = open_notebook("notebooks/00_start_here.ipynb")
    cell = "ex-mean-over-ranks"
    for name in ("load", "imports"):
        notebook.run(name)
    assert "not attempted yet" in notebook.run(cell)
    notebook.write(cell, WRONG)
    said = notebook.run(cell)
    assert "Not yet: mean_over_ranks at 4 ranks" in said
    assert "This is the sum" in said
    texts = find("mean_over_ranks").hints
    assert not any(text in notebook.run(f"{cell}-hint") for text in texts), "a hint is folded"
    notebook.cell(f"{cell}-hint")[1].locator("summary").last.click()
    shown = " ".join(notebook.cell(f"{cell}-hint")[1].inner_text().split())
    assert any(text in shown for text in texts) or "shows one solution" in shown
    notebook.write(cell, WRONG.replace("total.item()", "total.item() / dist.get_world_size()"))
    assert "every rank returns the same mean of all" in notebook.run(cell)
    assert "1 of 1 solved" in notebook.run("progress")
    assert notebook.errors() == []
    assert notebook.faults() == []


@in_full
@pytest.mark.browser
def test_the_driver_sees_what_is_wrong(tmp_path):
    """As a command, on a notebook with a failing cell: exit code 1, the error, the pictures."""
    cells = [book.nbformat.v4.new_code_cell(text) for text in ("1 + 1", "1 / 0")]
    path, picture = tmp_path / "faulty.ipynb", tmp_path / "page.png"
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    book.nbformat.write(book.nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
    line = [sys.executable, "-m", "tests.browser.lab", str(path), str(picture)]
    done = subprocess.run(line, cwd=book.ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "ZeroDivisionError: division by zero" in done.stdout
    assert brightness(picture) > 200 > 100 > brightness(picture.with_stem("page-dark"))


def brightness(picture: Path) -> float:
    """Mean grey of a picture: 0 is black, 255 white."""
    return ImageStat.Stat(Image.open(picture).convert("L")).mean[0]
