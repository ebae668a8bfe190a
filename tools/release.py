"""Build what a release attaches, in dist/:  python -m tools.release [--tag v1.0.0]

The sdist and the wheel of the files that git knows here, made by `python -m build`, and the same
bytes whoever builds them and when: times are that of the last commit (or SOURCE_DATE_EPOCH), rights
and owners are always the same, and setuptools is the one that constraints.txt names. With --tag,
a tag that is not `v` and the version of pyproject.toml is refused.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

from tools.set_up import PROJECT, ROOT

DIST = ROOT / "dist"
BUILD = ["-m", "build", "--no-isolation"]  # an isolated build would fetch whatever is newest


def version() -> str:
    """That of pyproject.toml, the only place that has it."""
    return tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"]


def tracked_files() -> list[str]:
    """The files that git knows and that are there, by their paths from the checkout."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    return [name for name in listed.split("\0") if (ROOT / name).is_file()]


def copy(to: Path) -> None:
    """Copy the files that git knows, with the rights that git knows: executable or not."""
    for name in tracked_files():
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
        target.chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)


def seconds() -> int:
    """The time that all files of the release get."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    return int(subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT))


def build(to: Path) -> list[Path]:
    """Build both into the folder `to`, which is made; the sdist and the wheel."""
    epoch = seconds()
    before = os.umask(0o022)  # setuptools writes files of its own, such as METADATA
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, built = Path(folder) / "source", Path(folder) / "built"
            copy(source)
            line = [sys.executable, *BUILD, "--outdir", str(built), str(source)]
            env = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
            env.pop("PYTHONPATH", None)
            run = subprocess.run(line, env=env, capture_output=True, text=True)
            if run.returncode:
                sys.exit(f"{run.stdout}{run.stderr}\nThe build failed, for the reason above.")
            to.mkdir(parents=True, exist_ok=True)
            (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
            repack(sdist, to / sdist.name, epoch)
            shutil.copyfile(wheel, to / wheel.name)
            return [to / sdist.name, to / wheel.name]
    finally:
        os.umask(before)


def repack(sdist: Path, to: Path, epoch: int) -> None:
    """Copy a .tar.gz without its builder's name and clock, which setuptools 84 writes into it."""
    with (
        tarfile.open(sdist) as old,
        open(to, "wb") as file,
        gzip.GzipFile("", "wb", mtime=epoch, fileobj=file) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old, key=lambda one: one.name):
            member.mtime, member.pax_headers = epoch, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            new.addfile(member, old.extractfile(member) if member.isfile() else None)


def main() -> None:
    """Build into dist/, which is emptied."""
    parser = argparse.ArgumentParser(prog="tools.release", description=__doc__)
    parser.add_argument("--tag", help="Such as v1.0.0: refuse to build if it is another version.")
    tag = parser.parse_args().tag
    if tag and tag != f"v{version()}":
        sys.exit(f"The tag is {tag}, and pyproject.toml has version {version()}: one is wrong.")
    shutil.rmtree(DIST, ignore_errors=True)
    for path in build(DIST):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
