"""Says at the end of every test run what this machine lacks, and what would run it.

tests/levels.py says what was left out for time. Tests marked `gpu` are deselected where there are
no two NVIDIA GPUs, those marked `gpu1` where there is none, those marked `cluster` where
tests.clusters cannot start one: without root, network namespaces or Slurm, those marked `network`
where the internet cannot be reached, those marked `sandbox` where bubblewrap does not work, and
those marked `memory` where this process may use less than 3 GB. Tests
marked `browser` are skipped where there is no Chromium. With WORKBOOK_NO_SKIPS=1 (.ci/run) a test
that is skipped or expected to fail fails the run: on a machine made for testing, a skip would be
a test that never runs. Deselected tests are counted in words there as well, and are not failures.
"""

import os
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Container
from multiprocessing.util import Finalize

import pytest

pytest_plugins = ["tests.levels"]

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_CHROMIUM = "needs Chromium: `make system-packages` installs it on Debian and Ubuntu"
# marker -> how many GPUs its tests need, in a number and in words, and what runs them
GPUS = {
    "gpu": (2, "two GPUs", "`make test TORCH=cuda` on a machine with two NVIDIA GPUs"),
    "gpu1": (1, "a GPU", "`make gpu` on a machine with an NVIDIA GPU"),
}
CLUSTER = "`make test-push` as root, on Debian or Ubuntu after `make system-packages`,"
SANDBOX = (
    "`make test-push` on Linux, after `make system-packages` or an installation of bubblewrap,"
)
NETWORK = "`make test` on a machine that reaches the internet"
MEMORY, LARGER = 3e9, "`make test` on a machine with more memory"  # bytes
# markers of tests that are not run where something lacks
LACKS = (*GPUS, "cluster", "sandbox", "network", "memory")
ONLINE = "WORKBOOK_ONLINE"  # variable: 1 or 0, for the processes of pytest-xdist
PROBE = "https://docs.pytorch.org/"  # most links of the pages lead there
# what this machine lacks, what runs such tests -> their names
NOT_RUN = pytest.StashKey[dict[tuple[str, str], list[str]]]()
THERE = pytest.StashKey[set[str]]()  # what stood in the checkout's first folder before
NEW = pytest.StashKey[list[str]]()  # what tests have left there
MANY = 10  # names; more are counted by file
# What takes longest begins first, or one process would still be at it when all else is done; the
# exercises are many small pieces, and fill the gaps at the end.
FIRST = ("test_notebooks.py", "browser/", "test_job_scripts.py", "test_many_hosts.py")
LAST = ("test_exercises.py",)


def chromium() -> str | None:
    """Path of this machine's Chromium or Chrome, None if there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


def gpu_count() -> int:
    """How many NVIDIA GPUs torch can use here; torch is imported for it, so ask late."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def reaches_the_internet() -> bool:
    """Whether the site of PyTorch's documentation answers, with whatever status.

    All processes of pytest-xdist must collect the same tests, so they take the answer of the one
    that started them.
    """
    import urllib.error
    import urllib.request

    if ONLINE in os.environ:
        return os.environ[ONLINE] == "1"
    try:
        urllib.request.urlopen(urllib.request.Request(PROBE, method="HEAD"), timeout=5).close()
    except urllib.error.HTTPError as error:
        error.close()  # refused by the site itself, so it was reached
    except OSError:
        return False
    return True


def there(config: pytest.Config) -> set[str]:
    """What stands in the checkout's first folder, without what is hidden."""
    return {name for name in os.listdir(config.rootpath) if not name.startswith(".")}


@pytest.fixture
def kernel(tmp_path):
    """A kernel of this test's own."""
    from tests.cells import Kernel  # late: most tests need no Jupyter

    kernel = Kernel(tmp_path)
    yield kernel
    kernel.close()


def lacking(marker: str) -> tuple[str, str] | None:
    """What this machine lacks for the tests with this marker, and what runs them; in words."""
    if marker == "cluster":
        from tests.clusters import missing  # late: it makes hosts to see whether it can

        return (missing(), CLUSTER) if missing() else None
    if marker == "sandbox":
        from ddp_workbook.workshop.sandbox import sandbox

        return (f"a sandbox ({sandbox().why})", SANDBOX) if sandbox().why else None
    if marker == "network":
        return None if reaches_the_internet() else ("a network", NETWORK)
    if marker == "memory":
        from manyranks.launcher.limits import usable_memory

        return None if usable_memory() >= MEMORY else ("3 GB of memory", LARGER)
    gpus, words, what_runs_them = GPUS[marker]
    return (words, what_runs_them) if gpu_count() < gpus else None


def pytest_configure(config: pytest.Config) -> None:
    """Make a temporary folder for whatever this process and those it starts leave there.

    A kernel or a rank that is killed cannot clean up, and torchrun keeps its logs. Each process of
    pytest-xdist has its own, so that none sees the files of another come and go.
    """
    config.stash[THERE] = there(config)
    # Ignored in what a script starts with `&`; tests send it, to themselves and to what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # before torch is imported; src/ddp_workbook/__init__.py says why
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if config.getoption("numprocesses", None):
        os.environ[ONLINE] = str(int(reaches_the_internet()))
    around = tempfile.gettempdir()
    # pytest's own folders outlive the run: a test that failed can be looked into
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", around)
    folder = tempfile.mkdtemp(prefix="t-")  # short: paths of sockets below it have 107 characters
    os.environ["TMPDIR"] = tempfile.tempdir = folder

    # at the very end: multiprocessing removes a folder in it, with the priority -100
    Finalize(None, shutil.rmtree, (folder, True), exitpriority=-200)


@pytest.hookimpl(trylast=True)  # -k and -m have chosen then: what is counted was asked for
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what is not to be had here, mark browser tests, put the longest first."""
    from tests.levels import leave_out  # late: a plugin is imported by pytest first

    leave_out(config, items)
    config.stash[NOT_RUN] = {}
    for marker in LACKS:
        wanting = [item for item in items if item.get_closest_marker(marker)]
        if wanting and (lack := lacking(marker)):
            config.stash[NOT_RUN][lack] = [item.nodeid for item in wanting]
            deselect(config, items, set(wanting))
    items.sort(key=lambda item: turn(item.nodeid))
    if chromium() is None:
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.skip(reason=NO_CHROMIUM))


def deselect(config: pytest.Config, items: list[pytest.Item], out: Container[pytest.Item]) -> None:
    """Take these out of the run."""
    config.hook.pytest_deselected(items=[item for item in items if item in out])
    items[:] = [item for item in items if item not in out]


def turn(name: str) -> int:
    """When a test begins: 0 first."""
    return (
        0 if any(map(name.__contains__, FIRST)) else 2 if any(map(name.__contains__, LAST)) else 1
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test after the moment that `make check` has set."""
    if time.time() > float(os.environ.get("WORKBOOK_UNTIL", "inf")):
        pytest.skip("left to `make test`: its time is over")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """Turn a skip, an expected failure and an unexpected pass into failures, under NO_SKIPS."""
    from tests.levels import no_skips

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
    from tests.levels import no_skips

    report = yield
    if no_skips() and report.skipped:
        report.outcome = "failed"
        report.longrepr = (
            f"{collector.nodeid}: skipped, and nothing may skip here: {report.longrepr[2]}"
        )
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of pytest-xdist: tell the process that sums up what was left out here.

    In that process: fail a run of `make test` whose tests have left something in the checkout.
    """
    from tests.levels import runs_level

    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["not_run"] = session.config.stash.get(NOT_RUN, {})
    elif new := there(session.config) - session.config.stash[THERE]:
        session.config.stash[NEW] = sorted(new)
        if runs_level(session.config, ""):
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    """Hear from a worker of pytest-xdist; each of them has looked at all tests."""
    output = getattr(node, "workeroutput", {})
    if "not_run" in output:  # a worker that has crashed says nothing
        node.config.stash[NOT_RUN] = output["not_run"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """Under --dist=loadfile: share out file by file, but exercises and notebooks one by one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    from tests.levels import SPLIT_FILES

    class ByFileOrPart(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            part = re.search(r"\[(\w+)", nodeid) if SPLIT_FILES.search(nodeid) else None
            return part[1] if part else super()._split_scope(nodeid)

    return ByFileOrPart(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in words what was not run, and what would enable it."""
    if new := terminalreporter.config.stash.get(NEW, []):
        terminalreporter.section("left behind", sep="!", red=True)
        terminalreporter.write_line(f"Tests have left this in the checkout: {', '.join(new)}.")
    left_out = terminalreporter.config.stash.get(NOT_RUN, {})
    browser = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if NO_CHROMIUM in str(report.longrepr)
    ]
    if left_out or browser:
        terminalreporter.section("not run on this machine")
    for (lack, what_runs_them), names in left_out.items():
        verb = f"test needs {lack} and was" if len(names) == 1 else f"tests need {lack} and were"
        line = f"{len(names)} {verb} not run here; {what_runs_them} runs such tests:"
        terminalreporter.write_line(line)
        if len(names) > MANY:
            files = Counter(name.split("::")[0] for name in names)
            names = [f"{name}, {count} of them" for name, count in files.items()]
        for name in names:
            terminalreporter.write_line(f"  {name}")
    if browser:
        verb = (
            "test drives a browser and was"
            if len(browser) == 1
            else "tests drive a browser and were"
        )
        terminalreporter.write_line(f"{len(browser)} {verb} not run here; that {NO_CHROMIUM}.")
