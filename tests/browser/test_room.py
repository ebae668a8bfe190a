"""The room over the network, on the projector: twenty attendees, 200 updates each, none lost."""

import json
import re
import subprocess
import sys
import time

import pytest

from ddp_workbook.page.questions import find
from ddp_workbook.workshop.room import board, views
from tests.browser.accessibility import book_findings
from tests.browser.lab import CHROMIUM_OPTIONS
from tests.conftest import chromium

pytestmark = pytest.mark.browser
PEOPLE, UPDATES, EXERCISES = 20, 200, 10
ATTENDEE = f"""
import sys
from ddp_workbook.page.room_client.report import join, note_guess, note_page, note_verdict

print(join(*sys.argv[1:]), flush=True)
sys.stdin.readline()
for number in range({UPDATES}):
    note_page("04_samplers")
    note_guess("who_loses_time", "a", "ab"[number % 2])
    solved = number >= {UPDATES - EXERCISES} and sys.argv[3].endswith("even")
    note_verdict(f"exercise_{{number % {EXERCISES}}}", "solved" if solved else "not yet", "Count.")
"""


@pytest.fixture
def invitation(tmp_path):
    """`ddp-workbook room --serve` on loopback: address, code and the page to project."""
    words = ["room", "--serve", "--address", "127.0.0.1", "--port", "0", "--every", "0.5"]
    code = "from ddp_workbook.cli import app; app()"
    line = [sys.executable, "-c", code, *words, "--names", "--folder", tmp_path / "room"]
    with open(tmp_path / "printed", "w") as printed:
        running = subprocess.Popen(line, stdout=printed, stderr=printed, cwd=tmp_path)
    try:
        page = tmp_path / "room" / "room.html"
        deadline = time.monotonic() + 600
        while not page.exists() and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        output = (tmp_path / "printed").read_text()
        address = re.search(r"Listening on (http://127\.0\.0\.1:\d+)\.", output)
        assert address, output
        yield address[1], (tmp_path / "room" / ".code").read_text(), page
    finally:
        running.terminate()
        running.wait()


@pytest.fixture
def attendees(invitation, tmp_path):
    """Their processes, each in a folder of its own; they have joined, and begin at a line."""
    address, code, _ = invitation
    processes = []
    try:
        for number in range(PEOPLE):
            own = tmp_path / f"own-{number}"
            own.mkdir()
            name = f"a rather long name {number} {'odd' if number % 2 else 'even'}"
            line = [sys.executable, "-c", ATTENDEE, address, code, name]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            processes.append(subprocess.Popen(line, cwd=own, **pipes))
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stdin.close()


def test_twenty_attendees_on_the_projector(invitation, attendees):
    """Half of them solve the exercises; the page shows it by itself, on 720 lines."""
    sync_api = pytest.importorskip("playwright.sync_api")
    _, code, path = invitation
    for attendee in attendees:
        assert "You are in the room" in attendee.stdout.readline()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_OPTIONS)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        page.goto(path.as_uri())
        page.wait_for_selector("text=The room: 20 people", timeout=600_000)
        for attendee in attendees:
            attendee.stdin.write("\n")
            attendee.stdin.flush()
        assert [attendee.wait(600) for attendee in attendees] == [0] * PEOPLE
        page.wait_for_selector("text=10 of 20 have solved exercise_9", timeout=600_000)
        page.wait_for_selector("text=20 (at first 0)", timeout=600_000)
        assert page.inner_text("h2") == find("who_loses_time").ask
        assert code in page.inner_text("body")
        # It is projected and has nothing to fill in, so it may load itself again; a copy does not.
        still, count = re.subn(r'<meta http-equiv="refresh"[^>]*>', "", path.read_text())
        assert count == 1
        copy = browser.new_page(viewport={"width": 1280, "height": 720})
        copy.set_content(still)
        assert book_findings(copy) == []
        height = copy.evaluate("document.documentElement.scrollHeight")
        assert height <= 720, f"{height} lines: somebody in the last row would have to scroll"
        browser.close()
    view = views.View(path.parent, path.with_name("other.html"))
    began = time.monotonic()
    result = view.look(board.Board())
    assert time.monotonic() - began < 1.0  # 0.01 on a quiet machine
    counts = [
        sum(work.attempts for work in attendee.exercises.values()) for attendee in result.attendees
    ]
    assert counts == [UPDATES] * PEOPLE and not result.corrupt
    files = sorted(one.name for one in path.parent.glob("*.json"))
    assert len(files) == PEOPLE and all(json.loads((path.parent / f).read_text()) for f in files)
