"""Three levels of tests: what `make test` runs, what a push needs besides, and all the rest.

A level is a marker. Tests without one are `make test`'s; `.ci/run` runs those marked `push` besides
(`--push`); those marked `release` are left to `make test-all` (`--all`, which runs every level). A
file that is named on the command line runs with its `push` tests. A file whose tests are all of one
such level says so in a `pytestmark`, and a run of another level does not even import it.

A test of `make test` has SECONDS of processor time; what needs more, and belongs there, is marked
`long`. Where nothing may skip (.ci/run) a test that takes twice as much fails: move it.
"""

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest

SECONDS = 5
NOISE = 2  # beside other work, gloo's waiting costs up to twice as much processor time
BYTES_PER_WORKER = 1.5e9  # bytes of memory for a process of pytest, its kernel and its ranks
RUNS = {"push": "`make test-push`", "release": "`make test-all`"}  # marker -> what runs it
ALWAYS = {"browser": "the browser", "cluster": "hosts and Slurm"}  # marker of `push` tests -> kind
# Files whose tests are shared out by what they are about: an exercise, a page
SPLIT_FILES = re.compile(r"\b(?:test_exercises|test_notebooks|test_mutants)\.py")
OF_A_FILE = re.compile(r'(?m)^pytestmark = .*?mark\.(\w+)(?:\("(.*?)"\))?')
# level -> kind -> [tests, files that were not collected]
OMITTED = pytest.StashKey[dict[str, dict[str, list[int]]]]()
START_SECONDS = pytest.StashKey[float]()  # processor seconds as a test began
TICK = os.sysconf("SC_CLK_TCK")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--push` and `--all`, which `make test-push` and `make test-all` give."""
    parser.addoption("--push", action="store_true", help="run the tests marked `push`, only them")
    parser.addoption("--all", action="store_true", help="run the tests of every level")


def runs_level(config: pytest.Config, level: str) -> bool:
    """Whether tests of this level, "" for that of `make test`, are run."""
    if config.getoption("--all"):
        return True
    if config.getoption("--push"):
        return level == "push"
    return level == "" or (level == "push" and bool(named_files(config)))


def no_skips() -> bool:
    """Whether a skipped test, or one that takes more than its share, fails the run."""
    return os.environ.get("WORKBOOK_NO_SKIPS", "") not in ("", "0")


def named_files(config: pytest.Config) -> list[str]:
    """The test files on the command line, with or without the test's name behind them."""
    return [word for word in config.args if word.partition("::")[0].endswith(".py")]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file of another level; count it under its kind."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    level, kind = level_of_file(text)
    if level:
        if not runs_level(config, level):
            words = re.findall(r"\w+", config.getoption("keyword"))
            if not words or any(word in f"{collection_path}\n{text}" for word in words):
                omissions(config)[level][kind][1] += 1
            return True
    elif config.getoption("--push") and not config.getoption("--all"):
        return True if not re.search(rf"mark\.(push|{'|'.join(ALWAYS)})\b", text) else None
    return None


def level_of_file(text: str) -> tuple[str, str]:
    """What `level_of` says of all tests of a file with this text, as its `pytestmark` says it."""
    match = OF_A_FILE.search(text)
    marker, kind = match.groups() if match else ("", "")
    if marker in ALWAYS:
        return "push", ALWAYS[marker]
    return (marker, kind) if marker in RUNS else ("", "")


def omissions(config: pytest.Config) -> dict[str, dict[str, list[int]]]:
    """What is left out for time so far."""
    return config.stash.setdefault(OMITTED, defaultdict(lambda: defaultdict(lambda: [0, 0])))


def level_of(item: pytest.Item) -> tuple[str, str]:
    """("push" or "release", its kind); ("", "") for a test of `make test`."""
    for level in reversed(RUNS):  # marked with both: the later one
        if mark := item.get_closest_marker(level):
            return level, next(iter(mark.args), "others")
    for marker, kind in ALWAYS.items():
        if item.get_closest_marker(marker):
            return "push", kind
    return "", ""


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the tests of other levels, and count them."""
    out = {item: level_of(item) for item in items if not runs_level(config, level_of(item)[0])}
    for level, kind in out.values():
        if level:
            omissions(config)[level][kind][0] += 1
    config.hook.pytest_deselected(items=list(out))
    items[:] = [item for item in items if item not in out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For `-nauto`: one more than cores, because tests wait, too, as far as memory allows.

    With `-k` as many as cores: each process collects all tests first. For files as many as there
    are, except where a file is shared out in parts. 0 is pytest itself: one that hands its tests to
    a single other would only take memory.
    """
    from manyranks.launcher import limits  # late: conftest has set what torch must find

    most = limits.usable_cores() + (not config.getoption("keyword"))
    files = named_files(config)
    if (
        files
        and len(files) == len(config.args)
        and not any(SPLIT_FILES.search(file) for file in files)
    ):
        most = min(most, len(files))
    processes = min(most, int(limits.free_memory() / BYTES_PER_WORKER))
    return processes if processes > 1 else 0


# Processor time


def tree_of(pid: int) -> Iterator[int]:
    """This process and all below it, as far as they are there; nothing where there is no /proc."""
    yield pid
    with contextlib.suppress(OSError):  # it, or one of its threads, has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                yield from tree_of(int(child))


def processor_seconds() -> float:
    """What this process, those below it, and those of them that have ended have computed so far.

    Processes that lost their parent before they ended are missing, and what the fork server of this
    process has imported is left out: one test of many happens to start it.
    """
    ticks, server = 0, getattr(forkserver._forkserver, "_forkserver_pid", None)
    for pid in tree_of(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # utime, stime, cutime, cstime: proc(5)
        ticks += sum(map(int, fields[13:15] if pid == server else fields[11:15]))
    return ticks / TICK


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Note the processor time when the test, its first fixtures included, begins."""
    item.stash[START_SECONDS] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Fail a test of `make test` that has taken more than its share, where nothing may skip."""
    report = yield
    if no_skips() and report.passed and call.when == "call" and not level_of(item)[0]:
        seconds = processor_seconds() - item.stash[START_SECONDS]
        if seconds > NOISE * SECONDS and not item.get_closest_marker("long"):
            report.outcome = "failed"
            report.longrepr = (
                f"{item.nodeid} took {seconds:.1f} processor seconds, and a test of `make test` "
                f"has {SECONDS}: move it, by marking it `push` or, if it belongs there, `long`."
            )
    return report


# In words


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of pytest-xdist: tell the process that sums up what was left out here."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left"] = {level: dict(kinds) for level, kinds in omissions(session.config).items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    """Hear from a worker of pytest-xdist; each of them has looked at all tests."""
    output = getattr(node, "workeroutput", {})
    if "left" in output:  # a worker that has crashed says nothing
        node.config.stash[OMITTED] = output["left"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each level that was left out: the command, how many tests, and of which kinds."""
    levels = omissions(terminalreporter.config)
    if levels:
        terminalreporter.section("left out for time")
    for level, runs in RUNS.items():
        if kinds := levels.get(level):
            tests, files = (sum(counts) for counts in zip(*kinds.values(), strict=True))
            counts = [f"{tests} test{'s' * (tests != 1)}"] * bool(tests)
            counts += [f"{files} file{'s' * (files != 1)} of tests"] * bool(files)
            most = sorted(kinds, key=lambda kind: (-sum(kinds[kind]), kind))
            kinds_in_words = ", ".join(most[:6]) + f" and {len(most) - 6} other kinds" * (
                len(most) > 6
            )
            terminalreporter.write_line(
                f"{runs} runs {' and '.join(counts)} more: {kinds_in_words}."
            )
