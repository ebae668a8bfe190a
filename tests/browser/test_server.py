"""The server that `make lab` starts: behind a token, on loopback, on the port that was named."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import psutil
import pytest

from tests.browser.server import server
from tools import book, set_up

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
        result = subprocess.run(line, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode != 0
    assert f"port {port} " in result.stderr
