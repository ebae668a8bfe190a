"""What this machine cannot run, and what would enable it: in words at the end of every test run.

Tests marked `gpu` are deselected where there are no two NVIDIA GPUs; tests marked `browser` are
skipped where there is no Chromium. With WORKBOOK_NO_SKIPS=1 (.ci/run) a test that is skipped or
expected to fail fails the run: on a machine made for testing, a skip is a test that nobody runs.
"""

import os
import re
import shutil

import pytest

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_CHROMIUM = "needs Chromium: `make system-packages` installs it on Debian and Ubuntu"
NO_GPUS = "`make test TORCH=cuda` on a machine with two NVIDIA GPUs runs such tests"
NOT_RUN = pytest.StashKey[list[str]]()


def chromium() -> str | None:
    """Path of this machine's Chromium or Chrome, None if there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


def gpu_count() -> int:
    """How many NVIDIA GPUs torch can use here; torch is imported for it, so ask late."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def no_skips() -> bool:
    """Whether a skipped test fails the run."""
    return os.environ.get("WORKBOOK_NO_SKIPS", "") not in ("", "0")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the tests that need GPUs, mark those that need a browser."""
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if wanting and gpu_count() < 2:
        config.stash[NOT_RUN] = [item.nodeid for item in wanting]
        config.hook.pytest_deselected(items=wanting)
        items[:] = [item for item in items if item not in wanting]
    # What takes longest begins first, or one process would still be at it when all else is done.
    items.sort(key=lambda item: "test_notebooks.py" not in item.nodeid)
    if chromium() is None:
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.skip(reason=NO_CHROMIUM))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """Turn a skip, an expected failure and an unexpected pass into failures, under NO_SKIPS."""
    report = yield
    expected = hasattr(report, "wasxfail")
    if no_skips() and (report.skipped or expected):
        reason = report.wasxfail if expected else report.longrepr[2]
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: skipped, and nothing may skip here: {reason}"
        if expected:
            del report.wasxfail
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    """The same for a file that skips as a whole, with importorskip or allow_module_level."""
    report = yield
    if no_skips() and report.skipped:
        report.outcome = "failed"
        report.longrepr = (
            f"{collector.nodeid}: skipped, and nothing may skip here: {report.longrepr[2]}"
        )
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of pytest-xdist: tell the process that sums up what was left out here."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["not_run"] = session.config.stash.get(NOT_RUN, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    """Hear from a worker of pytest-xdist; each of them has looked at all tests."""
    node.config.stash[NOT_RUN] = getattr(node, "workeroutput", {}).get("not_run", [])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """Under --dist=loadfile: share out file by file, but exercises and solved notebooks each."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrPart(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            own = re.search(r"(?:test_exercises\.py::.*|::test_solved)\[(\w+)", nodeid)
            return own[1] if own else super()._split_scope(nodeid)

    return ByFileOrPart(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in words what was not run, and what would enable it."""
    left_out = terminalreporter.config.stash.get(NOT_RUN, [])
    browser = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if NO_CHROMIUM in str(report.longrepr)
    ]
    if left_out or browser:
        terminalreporter.section("not run on this machine")
    if left_out:
        verb = "test needs a GPU and was" if len(left_out) == 1 else "tests need a GPU and were"
        terminalreporter.write_line(f"{len(left_out)} {verb} not run here; {NO_GPUS}:")
        for name in left_out:
            terminalreporter.write_line(f"  {name}")
    if browser:
        verb = (
            "test drives a browser and was"
            if len(browser) == 1
            else "tests drive a browser and were"
        )
        terminalreporter.write_line(f"{len(browser)} {verb} not run here; that {NO_CHROMIUM}.")
