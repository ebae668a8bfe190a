"""Shows what a function that writes a file would leave behind, if it were killed after any step.

While it runs, a profiler is called after each call that it makes, of Python or of C. What is in the
folder then is what a kill would leave there: the buffers of open files die with the process.
"""

import contextlib
import errno
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from ddp_workbook.judging.job_scripts import FOLDER_PREFIX, remove_stale_folders

NOBODY = 65534  # a user who may write nowhere


@contextlib.contextmanager
def temporary_target() -> Iterator[Path]:
    """A temporary folder; one whose process was killed is removed by the next."""
    remove_stale_folders()
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER_PREFIX}{os.getpid()}-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder, "saved").absolute()


def read_if_present(path: Path) -> bytes | None:
    """What a kill would leave in the file; None without a file."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def inodes(folder: Path) -> dict[int, Path]:
    """All files in a folder and in those below it, by their numbers on the disk."""
    paths: dict[int, Path] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            inner = entry.is_dir(follow_symlinks=False)
            paths |= inodes(Path(entry.path)) if inner else {entry.inode(): Path(entry.path)}
    return paths


class CrashPoints:
    """What `path` held after each step; `synced_data` has what fsync wrote, by inode."""

    def __init__(self, path: Path, code: Any):
        self.path, self.cell = path, getattr(code, "co_filename", "")
        self.contents: list[tuple[bytes | None, int]] = []  # each new content, after which line
        self.other_files: list[
            dict[Path, bytes]
        ] = []  # what stood beside it until it was first changed
        self.synced_data: dict[int, bytes | None] = {}
        self.write_through: set[int] = set()  # inodes opened so that each write waits for the disk
        self.known_inodes = inodes(path.parent)
        self.is_inside, self.fsync_called = True, False  # whether fsync was called
        # What got the name last: its inode, what the disk had of it, what the file had.
        self.latest_rename: tuple[int, bytes | None, bytes | None] = (0, None, None)
        self.inode = self.inode_now()

    def inode_now(self) -> int:
        """The number of the file that has the name `path`; 0 without one."""
        try:
            return os.stat(self.path).st_ino
        except OSError:
            return 0

    @property
    def not_synced(self) -> str:
        """Why the data of the file was not on the disk when it got its name; "" if it was."""
        inode, data, content = self.latest_rename
        if data == content:
            return ""
        if data is not None:
            return "and fsync came before all of its data was written"
        if inode in self.synced_data:
            return "and fsync came after that"
        other = self.fsync_called or self.synced_data
        return "and the fsync was of something else" if other else "with no fsync before it"

    def record(self, frame: FrameType | None, event: str, what: Any) -> None:
        """Note what the folder holds: called by Python after each call."""
        if event in ("call", "c_call"):
            return
        content, inode = read_if_present(self.path), self.inode_now()
        if inode and inode != self.inode:
            self.is_inside &= inode in self.known_inodes
            synced = content if inode in self.write_through else self.synced_data.get(inode)
            self.latest_rename = inode, synced, content
        self.inode = inode
        if not self.contents or self.contents[-1][0] != content:
            while frame and frame.f_code.co_filename != self.cell:
                frame = frame.f_back
            self.contents.append((content, frame.f_lineno if frame else 0))
        now = inodes(self.path.parent)
        self.known_inodes |= now
        if len(self.contents) == 1 and len(now) > 1:
            self.other_files.append(
                {file: read_if_present(file) or b"" for file in now.values() if file != self.path}
            )

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record while these lines run."""
        self.record(None, "", None)
        before = sys.getprofile()
        sys.setprofile(self.record)
        try:
            yield
        finally:
            sys.setprofile(before)
            self.record(None, "", None)

    @contextlib.contextmanager
    def recording_fsync(self, names: dict[str, Any], fails: bool = False) -> Iterator[None]:
        """Note each fsync in the place of waiting for the disk; `names` are those of the cell."""

        def fsync(file: Any) -> None:
            number = os.fstat(file if isinstance(file, int) else file.fileno()).st_ino
            if path := inodes(self.path.parent).get(number):
                self.synced_data[number] = read_if_present(path)
            self.fsync_called = True
            if fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        def sync() -> None:
            self.synced_data |= {
                inode: read_if_present(path) for inode, path in inodes(self.path.parent).items()
            }

        os_open = os.open

        def open_noting_sync(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            number = os_open(path, flags, *args, **kwargs)
            if flags & (os.O_DSYNC | os.O_SYNC):
                self.write_through.add(os.fstat(number).st_ino)
            return number

        instead = {
            os.open: open_noting_sync,
            os.fsync: fsync,
            os.sync: sync,
            getattr(os, "fdatasync", None): fsync,
        }
        originals = [
            (space, name, value)
            for space in (vars(os), names)
            for name, value in space.items()
            if callable(value) and getattr(value, "__module__", "") == "posix" and value in instead
        ]
        try:
            for space, name, value in originals:
                space[name] = instead[value]
            yield
        finally:
            for space, name, value in originals:
                space[name] = value


@contextlib.contextmanager
def full_disk(after: int) -> Iterator[None]:
    """No file can grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """No file can be made in the folder, nor renamed, as if another user had made it."""
    root = os.geteuid() == 0  # whom no mode stops
    folder.chmod(0o555)
    try:
        os.seteuid(NOBODY) if root else None
        yield
    finally:
        os.seteuid(0) if root else None
        folder.chmod(0o755)
