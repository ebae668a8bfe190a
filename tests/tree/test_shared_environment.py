"""`make setup SHARED=DIR`: one environment for many, and the Dockerfile, which uses it."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh_checkout import CHECKOUT, FreshCheckout, assert_refused, obey_permissions
from tools.set_up import DISK_BYTES
from tools.thin import copy_program

pytestmark = pytest.mark.push("environments that are made anew")

DOCKERFILE = (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")


def make(newcomer: FreshCheckout, *words: str, **variables: str) -> subprocess.CompletedProcess:
    """Run make as somebody who may write nothing but their own files."""
    line = newcomer.call(*words, **variables)
    options = {"capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(line, cwd=newcomer.folder, preexec_fn=obey_permissions, **options)


def set_writable(folder: Path, *, yes: bool) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o200 if yes else path.stat().st_mode & ~0o222)


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    """The one who sets up; what they made cannot be written by anybody."""
    owner = FreshCheckout(tmp_path_factory.mktemp("owner"))
    assert owner.make("setup").returncode == 0
    set_writable(owner.folder, yes=False)
    yield owner
    set_writable(owner.folder, yes=True)


@pytest.fixture
def attendee(tmp_path) -> FreshCheckout:
    """Somebody with a copy of the checkout of their own."""
    return FreshCheckout(tmp_path)


def state(folder: Path) -> dict[str, float]:
    return {str(path): path.lstat().st_mtime for path in folder.rglob("*")}


def test_packages_are_shared_and_the_workbook_is_not(owner, attendee):
    """Some kilobytes; its Python and its programs are the attendee's own; twice is once."""
    before = state(owner.folder)
    result = make(attendee, "setup", SHARED=str(owner.venv))
    assert result.returncode == 0 and f"torch: cpu, from {owner.venv}." in result.stdout, (
        result.stderr
    )
    ask = "import sys, torch, ddp_workbook as d; print(sys.prefix, torch.__file__, d.__file__)"
    line = [attendee.venv / "bin/python", "-c", ask]
    paths = subprocess.check_output(line, env={}, text=True).strip()
    own, theirs = str(attendee.folder), str(owner.venv)
    assert paths.startswith(f"{own}/.venv {theirs}/lib/")
    assert paths.endswith(f" {own}/src/ddp_workbook/__init__.py")
    pip = [attendee.venv / "bin/pip", "--version"]
    assert theirs in subprocess.check_output(pip, text=True)  # started by our Python, from there
    assert theirs not in (attendee.venv / "bin/pip").read_text()
    taken = [path for path in attendee.venv.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in taken) < DISK_BYTES["cpu"] / 1000
    assert (attendee.venv / "etc/ipython/ipython_kernel_config.py").exists()
    made = state(attendee.venv)
    assert make(attendee, "setup").returncode == 0  # it is remembered
    assert state(attendee.venv) == made and state(owner.folder) == before


def test_what_cannot_be_shared_is_named(owner, attendee, tmp_path):
    shared = {"SHARED": str(owner.venv)}
    assert_refused(
        make(attendee, "setup", SHARED=str(tmp_path)), "no environment", "may not read it"
    )
    assert_refused(make(attendee, "setup", TORCH="cpu", **shared), "either TORCH= or SHARED=")
    assert_refused(make(attendee, "test", **shared), "has no packages for tests")
    attendee.pins.write_text(attendee.pins.read_text() + "# new\n")
    assert_refused(make(attendee, "setup", **shared), "another edition", str(owner.folder))
    assert not attendee.venv.exists()


def test_an_environment_that_has_gone_is_seen(owner, attendee, tmp_path):
    """Said by the next call, and not by the first cell."""
    assert make(attendee, "setup", SHARED=str(owner.venv)).returncode == 0
    stamp = json.loads(attendee.stamp.read_text())
    attendee.stamp.write_text(json.dumps(stamp | {"shared": str(tmp_path / "gone")}))
    assert_refused(make(attendee, "setup"), "no environment")


def test_a_newer_edition_does_not_stop_those_who_have_an_environment(owner, attendee):
    """After `ddp-workbook update` in the morning, they go on; all are told what to do."""
    assert make(attendee, "setup", SHARED=str(owner.venv)).returncode == 0
    attendee.pins.write_text(attendee.pins.read_text() + "# new\n")
    result = make(attendee, "setup")
    assert result.returncode == 0 and "let its owner run `make setup` in" in result.stdout


@pytest.mark.parametrize("folder", ["a b", 'it\'s "$HOME"', "long" * 40, "plain"])
def test_a_program_starts_wherever_its_folder_is(tmp_path, folder):
    """With a space in the path, or a long one; a program that such a folder already has, too."""
    for name in ("old", folder):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").symlink_to(sys.executable)
    old, own = (str(tmp_path / name) for name in ("old", folder))
    program = tmp_path / "old" / "bin" / "tell"
    program.write_text(f"#!{old}/bin/python\nimport sys\nprint(sys.argv[1:], sys.flags.isolated)\n")
    copy = tmp_path / folder / "bin" / "tell"
    copy_program(program, copy, [old], own)
    assert subprocess.check_output([copy, "x y"], text=True) == "['x y'] 0\n"
    copy_program(copy, tmp_path / "again", [own], old)
    assert subprocess.check_output([tmp_path / "again", "x y"], text=True) == "['x y'] 0\n"


def test_programs_that_name_no_python_are_links(tmp_path):
    """Such as ruff, which is not written in Python."""
    (tmp_path / "ruff").write_bytes(b"\x7fELF")
    copy_program(tmp_path / "ruff", tmp_path / "link", ["old"], "new")
    assert (tmp_path / "link").resolve() == tmp_path / "ruff"


# The Dockerfile


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of each, on one line."""
    lines = re.sub(r"(?m)^#.*\n", "", DOCKERFILE).replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line)]


def test_the_image_is_one_that_a_linter_accepts():
    """A pinned base with a Python that fits, no lists of packages left, and no root at the end."""
    words = [word for word, _ in instructions()]
    steps = dict(instructions())
    assert re.fullmatch(r"python:3\.1[1-3]-slim-\w+", steps["FROM"])
    (packages,) = [rest for word, rest in instructions() if word == "RUN" and "apt-get" in rest]
    assert "--no-install-recommends" in packages and "rm -rf /var/lib/apt/lists/*" in packages
    folders = [rest for word, rest in instructions() if word == "WORKDIR"]
    assert all(folder.startswith("/") for folder in folders)
    assert words.index("USER") < words.index("CMD") and steps["USER"] == "reader"
    assert json.loads(steps["CMD"])[:2] == ["sh", "-c"]
    ignored = (CHECKOUT / ".dockerignore").read_text().split()
    assert {".venv", "**/work"} <= {*ignored}


def test_the_commands_of_the_dockerfile(tmp_path):
    """In folders instead of an image: the environment, then a reader's own copy, made once."""
    image = FreshCheckout(tmp_path)
    srv, home = tmp_path / "srv", tmp_path / "home"
    srv.mkdir()
    home.mkdir()
    image.folder = image.folder.rename(srv / "workbook")
    env = ["env", "-i", *(f"{name}={value}" for name, value in image.variables.items())]
    (build,) = [rest for word, rest in instructions() if word == "RUN" and "make setup" in rest]
    build = build.replace("/root/.cache", f"{tmp_path}/cache").replace("/srv/", f"{srv}/")
    subprocess.run([*env, "sh", "-ec", build], cwd=image.folder, check=True, timeout=120)
    set_writable(srv / "environment", yes=False)
    steps = dict(instructions())
    start = json.loads(steps["CMD"])[2].replace("/srv/", f"{srv}/")
    shared = steps["ENV"].replace("/srv/", f"{srv}/")
    lab = re.search(r"make lab ARGS='(.*)'", start)
    assert shlex.split(lab[1]) == ["--no-browser", "--ip=0.0.0.0", f"--port={steps['EXPOSE']}"]
    line = [*env, shared, "sh", "-ec", start.replace(lab[0], "make setup")]
    for _ in range(2):
        subprocess.run(line, cwd=home, check=True, timeout=120, preexec_fn=obey_permissions)
        (home / "workbook" / "mine").touch()
    assert not (home / "workbook" / ".venv").is_symlink()
    stamp = json.loads((home / "workbook" / ".venv" / "workbook.json").read_text())
    assert stamp["shared"] == str(srv / "environment")
    pip = (home / "workbook" / ".venv" / "bin" / "pip").read_text()
    assert str(home) in pip and str(srv) not in pip
    set_writable(srv / "environment", yes=True)
