"""`ddp-workbook grade` on a stranger's code: what it can do, in a sandbox and without one."""

import contextlib
import json
import socket
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from ddp_workbook.judging.catalogue import Exercise
from ddp_workbook.judging.verdict import NOT_YET, SOLVED
from ddp_workbook.page.pages import CHECKOUT
from ddp_workbook.workshop import sandbox
from ddp_workbook.workshop.grading import Judge
from manyranks.errors import WorkbookError
from tests.commands import run

pytestmark = pytest.mark.push("strangers' code")

MEAN = Exercise("mean_over_ranks")
MARK = "# here"
RIGHT = f"{MARK}\n{MEAN.solution}"
WRONG = RIGHT.replace("return", "return 1 +")
DETECT_SANDBOX = sandbox.sandbox.__wrapped__  # not the answer that is kept
NONE = sandbox.Sandbox("none", "a test asks for it")
TRIES = """
import contextlib, os, pwd, socket

@contextlib.contextmanager
def told(what):
    try:
        yield
        print(what, "done")
    except OSError as error:
        print(what, type(error).__name__)

with told("delete"):
    os.unlink({precious!r})
with told("overwrite"):
    open({precious!r}, "w").close()
with told("write"):
    open({ours!r}, "r+b").close()
with told("read"):
    open({secret!r}).close()
with told("connect"):
    socket.create_connection(("127.0.0.1", {port}), timeout=5).close()
print("home", os.listdir(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)))
print("more of the system", sorted({{*os.listdir("/etc"), *os.listdir("/")}} - {system!r}))
print("device", os.path.exists("/dev/sda") or os.path.exists("/dev/vda"))
"""


@pytest.fixture(
    params=[pytest.param("bubblewrap", marks=pytest.mark.sandbox), "none"], scope="module"
)
def kind(request):
    """With the sandbox of this machine, and without one."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "none":
            patch.setattr(sandbox, "sandbox", lambda: NONE)
        yield request.param


@pytest.fixture(scope="module")
def judge(kind):
    """What judges; at the end none of its processes is left."""
    judge = Judge()
    yield judge
    judge.close()
    assert [
        process
        for process in psutil.process_iter()
        if sandbox.runs(process) and is_a_strangers(process)
    ] == []


def is_a_strangers(process: psutil.Process) -> bool:
    """Whether it was started by this test: without a sandbox, its home is in our own folder."""
    with contextlib.suppress(psutil.Error):
        home = process.environ().get("HOME", "")
        sandboxed = "bwrap" in process.name() and psutil.Process() in process.parents()
        return home.startswith(f"{tempfile.gettempdir()}/ddp-workbook-apart-") or sandboxed
    return False


def system_names() -> set[str]:
    """What may be in / and in /etc in the sandbox."""
    folders = [*map(Path, sandbox.SYSTEM_FOLDERS), *sandbox.needed_folders()]
    folders += [*sandbox.scratch_folders(), Path("/etc"), Path("/dev"), Path("/proc")]
    return {name for folder in folders for name in (folder.parts[1], folder.name)}


def rows(verdict) -> str:
    return f"{verdict.title}\n" + "\n".join(text for _, text in verdict.rows)


def test_what_a_stranger_can_do(judge, kind, tmp_path):
    """In the sandbox: change nothing of ours, connect to nobody, see no GPU and no home folder.

    Nor can it read what is neither the system's nor the workbook's: data disks, others' attempts.
    """
    precious = tmp_path / "precious"
    precious.write_text("mine")
    secret = CHECKOUT / "README.md"  # as a file of ours that no judge needs
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ours = CHECKOUT / "src" / "ddp_workbook" / "cli.py"
        names = {"precious": str(precious), "ours": str(ours), "secret": str(secret)}
        tries = TRIES.format(**names, port=port, system=system_names())
        output = judge(MEAN, WRONG.replace(MARK, tries)).printed
    if kind == "none":
        assert "write done" in output and "connect done" in output and precious.read_text() == ""
        return
    assert precious.read_text() == "mine"
    for line in ("delete FileNotFoundError", "write OSError", "read FileNotFoundError"):
        assert line in output, output
    assert "connect ConnectionRefusedError" in output and "more of the system []" in output
    home = Path.home().resolve()
    folders = [folder for folder in sandbox.needed_folders() if home in folder.parents]
    entries = sorted(
        {folder.relative_to(home).parts[0] for folder in folders}
    )  # such as Python's folder
    assert f"home {entries}" in output and "device False" in output


def test_variables_and_the_home_folder_are_not_ours(judge, monkeypatch):
    """Without a sandbox, too: code that asks for the home folder gets an empty one."""
    judge.close()
    monkeypatch.setenv("SECRET", "token")
    line = "import os; print(os.listdir(os.path.expanduser('~')), os.environ.get('SECRET'))"
    output = judge(MEAN, WRONG.replace(MARK, line)).printed
    assert "None" in output and "token" not in output and ".bashrc" not in output


ENDLESS = {
    "import torch\nheld = []\nwhile True: held.append(torch.empty(2**26))": "can't allocate memory",
    "with open('big', 'wb') as file:\n    while True: file.write(bytes(2**24))": "File too large",
}


@pytest.mark.parametrize("code", ENDLESS, ids=["memory", "file"])
def test_limits_of_a_process(judge, code):
    """4 GiB of memory, 256 MiB of a file; the attempt fails as on its page."""
    verdict = judge(MEAN, RIGHT.replace(MARK, code))
    assert verdict.kind == NOT_YET and ENDLESS[code] in rows(verdict)


def test_an_attempt_that_takes_too_much_is_stopped(judge, monkeypatch):
    """All its processes together, in number and in memory, and in time; others are judged."""
    with monkeypatch.context() as few:
        few.setattr(sandbox, "MAX_PROCESSES", 40)
        forks = (
            "import os, time\nfor _ in range(60):\n    os.fork() or (os.setsid(), time.sleep(60))"
        )
        verdict = judge(MEAN, RIGHT.replace(MARK, f"import os, time\n{forks}\ntime.sleep(60)"))
    assert verdict.kind == NOT_YET and "started more than 40 processes" in rows(verdict)
    assert judge(MEAN, RIGHT).kind == SOLVED
    with monkeypatch.context() as little:  # forks have nearly all of their memory in common
        hold = "import os, time, torch\nheld = torch.ones(2**25)\nfor _ in range(12):\n"
        forks = f"{hold}    os.fork() or (time.sleep(60), os._exit(0))\n"
        little.setattr(judge.process, "memory", 2 * 2**30)
        assert judge(MEAN, RIGHT.replace(MARK, forks)).kind == SOLVED
    judge.process.memory = 2**20
    assert "used more than 0.0 GiB of memory" in rows(judge(MEAN, RIGHT))
    assert judge(MEAN, RIGHT).kind == SOLVED
    with monkeypatch.context() as soon:
        soon.setattr(sandbox, "ANSWER_TIMEOUT_S", 0.05)
        assert "has not ended after 0.05 s" in rows(judge(MEAN, RIGHT))


def test_the_judge_can_be_killed_and_not_be_read(judge):
    """It is started again for the next attempt. Its pipes are no stranger's."""
    kills = "import psutil, time\npsutil.Process().parent().parent().kill()\ntime.sleep(5)"
    verdict = judge(MEAN, RIGHT.replace(MARK, kills))
    assert verdict.kind == NOT_YET and "ended the process that judges it" in rows(verdict)
    forged = json.dumps({"kind": SOLVED, "title": "t", "rows": [], "printed": ""}).encode()
    says = f"import os\nos.write(1, {forged!r} + b'\\n'); os.read(0, 1)"
    assert judge(MEAN, WRONG.replace(MARK, says)).kind == NOT_YET


# What is said


def test_without_a_sandbox_nothing_runs_unless_it_is_asked_for(tmp_path, monkeypatch):
    """Others' attempts; one's own are run as on their pages."""
    monkeypatch.setattr(sandbox, "sandbox", lambda: NONE)
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'w').close()\n{MEAN.solution}"
    (tmp_path / "work" / "exercises").mkdir(parents=True)
    (tmp_path / "work" / "exercises" / "mean_over_ranks.py").write_text(code)
    status, output = run("grade", "--work", tmp_path / "work")
    assert status == 2 and "Nothing was run" in output and "--without-sandbox" in output
    assert not trace.exists()
    monkeypatch.chdir(tmp_path)
    assert run("grade")[0] == 0 and trace.exists()


def test_the_output_says_how_the_code_ran(tmp_path, kind):
    (tmp_path / "mean_over_ranks.py").write_text(MEAN.solution)
    code, output = run("grade", "--work", tmp_path, "--without-sandbox")
    none = f"without a sandbox, because {NONE.why}"
    words = {"bubblewrap": "in a sandbox (bubblewrap)", "none": none}[kind]
    assert code == 0 and f"Their code ran {words}" in output


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (None, "bwrap is not installed (Debian and Ubuntu: sudo apt install bubblewrap)"),
        (
            "echo 'bwrap: No permissions' >&2; exit 1",
            "bwrap does not work here (bwrap: No permissions)",
        ),
    ],
)
def test_a_machine_without_a_sandbox(tmp_path, monkeypatch, program, why):
    """Not installed, or forbidden, as in many containers."""
    if program:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/nowhere")
    assert DETECT_SANDBOX() == sandbox.Sandbox("none", why)


def test_a_python_behind_several_links_is_found(tmp_path, monkeypatch):
    """As uv makes them: .venv's Python is a link to a link in another folder."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3.12").symlink_to(sys.executable)
    (tmp_path / "python").symlink_to(Path("bin", "python3.12"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert tmp_path / "bin" in sandbox.needed_folders()


def test_a_judge_that_does_not_start(kind):
    with pytest.raises(WorkbookError, match="No module named nowhere"):
        sandbox.SandboxedProcess("nowhere")
