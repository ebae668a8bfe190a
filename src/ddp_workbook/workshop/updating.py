"""`ddp-workbook update`: a newer edition of the workbook, in which a reader's own cells are kept.

Editions are commits of git: HEAD, and that of its upstream or of another clone. What a reader has
is what stands in the checkout, whether staged or not. Nothing is remembered but by git: an update
that was stopped half-way is completed by the next one, because merging an edition again changes
nothing.
"""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddp_workbook.page import pages
from ddp_workbook.workshop.merging import merge
from manyranks.errors import WorkbookError
from manyranks.files import write_numbered

LOCAL_TIMEOUT_S = 60.0  # seconds for a command of git that asks no other machine
REMOTE_TIMEOUT_S = 180.0  # seconds for git fetch
PACKAGE_FILES = ("pyproject.toml", "constraints.txt")  # what `make lab` installs from
BUSY = {  # files of git while it is in the middle of something -> how to leave that
    "MERGE_HEAD": "git merge --abort",
    "rebase-merge": "git rebase --abort",
    "rebase-apply": "git rebase --abort",
    "CHERRY_PICK_HEAD": "git cherry-pick --abort",
}
JUST_SAVED = "It was saved in this moment."
NOTHING_CHANGED = "Nothing was changed."


class CannotUpdate(WorkbookError):
    """The update was refused, or stopped; running it again is always safe."""


@dataclass
class Outcome:
    """What an update has changed, as paths below the checkout."""

    new_files: list[str] = field(default_factory=list)  # files that are new, or new again
    removed_files: list[str] = field(default_factory=list)
    aside: dict[str, tuple[int, Path]] = field(default_factory=dict)
    """What both have changed: how many cells (0: the file), and the file with the reader's."""
    unchanged: dict[str, str] = field(default_factory=dict)  # pages left as they are, and why
    kept: dict[str, str] = field(default_factory=dict)
    """Files that the new edition has not, with changes of the reader's, and where it has one of
    that name; "" if nowhere."""

    @property
    def pages(self) -> list[str]:
        """The names of the pages that have changed."""
        return [Path(path).name for path in self.new_files if path.endswith(".ipynb")]

    @property
    def installs(self) -> bool:
        """Whether other packages may be needed."""
        return any(path in self.new_files for path in PACKAGE_FILES)


@dataclass(frozen=True)
class Change:
    """A file that differs between two editions, with git's ids of its contents; "" for none."""

    path: str
    old: str
    new: str
    runs: bool = False  # whether the new one is a program
    mine: str = ""  # what stands in the checkout

    @property
    def is_page(self) -> bool:
        """Whether it is a notebook in both editions, and in the checkout."""
        return self.path.endswith(".ipynb") and bool(self.old and self.new and self.mine)


def update(checkout: Path, source: Path | None = None) -> Outcome:
    """Bring the checkout to its upstream's edition, or to that of the clone in `source`.

    Raises CannotUpdate, before anything is changed unless it says otherwise. A page that cannot be
    read stays as it is; then the edition counts as the old one, so that the next update renews it.
    """
    _refuse_other_folders(checkout)
    _refuse_unfinished(checkout)
    head = git(checkout, "rev-parse", "HEAD").strip()
    target = _newest(checkout, source, head)
    if _contains(checkout, head, target):
        return Outcome()
    outcome = Outcome()
    try:
        _bring(checkout, changes(checkout, head, target), target, outcome)
    except OSError as error:
        raise CannotUpdate(
            f"{error.filename} cannot be written: {error.strerror}. Some files are new and others "
            "are not yet: mend this, and run `update` again, which completes it."
        ) from None
    if not outcome.unchanged:
        git(checkout, "reset", "-q", target)
    return outcome


# What git knows


def git(
    checkout: Path, *words: str, stdin: str = "", seconds: float = LOCAL_TIMEOUT_S, index: str = ""
) -> str:
    """What a command of git prints; `index` is another file for its index.

    Raises CannotUpdate with git's own words.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    ssh = os.environ.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    asks_nothing = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": ssh, "LC_ALL": "C"}
    try:
        result = subprocess.run(
            ["git", "-C", str(checkout), *words],
            input=stdin.encode("utf-8", "surrogateescape"),
            env=clean | asks_nothing | ({"GIT_INDEX_FILE": index} if index else {}),
            capture_output=True,
            check=True,
            timeout=seconds,
        )
    except FileNotFoundError:
        raise CannotUpdate(
            "git is not installed, and `update` needs it to tell your cells from ours: install git "
            f"(Debian and Ubuntu: sudo apt install git). {NOTHING_CHANGED}"
        ) from None
    except subprocess.TimeoutExpired:
        raise CannotUpdate(f"git {words[0]} has not ended after {seconds:g} s.") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines() or [str(error)]
        why = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1])
        raise CannotUpdate(f"git {words[0]}: {why}") from None
    return result.stdout.decode("utf-8", "surrogateescape")


def _refuse_other_folders(checkout: Path) -> None:
    try:
        top = git(checkout, "rev-parse", "--show-toplevel").rstrip("\n")
    except CannotUpdate as error:
        if "not a git repository" not in str(error):
            raise
        top = ""
    if not top or not Path(top).samefile(checkout):
        raise CannotUpdate(
            f"{checkout} was not made by `git clone`, so nobody can tell your cells from the "
            "shipped ones. Clone the workbook into a new folder, run `make lab` there, and copy "
            f"notebooks/work, which has your attempts, into its notebooks. {NOTHING_CHANGED}"
        )


def _refuse_unfinished(checkout: Path) -> None:
    """Refuse if git is in the middle of a merge, or has conflicts left."""
    for name, mend in BUSY.items():
        if Path(checkout, git(checkout, "rev-parse", "--git-path", name).rstrip("\n")).exists():
            raise CannotUpdate(
                f"git is in the middle of something else: `{mend}` leaves it. Then run `update` "
                f"again. {NOTHING_CHANGED}"
            )
    conflicts = {
        line.partition("\t")[2] for line in git(checkout, "ls-files", "-u", "-z").split("\0")
    } - {""}
    if conflicts:
        raise CannotUpdate(
            f"git has conflicts in {', '.join(sorted(conflicts))}, as after `git stash pop`. "
            "`git checkout HEAD -- FILE` takes the shipped file, and the stash keeps yours. Then "
            f"run `update` again. {NOTHING_CHANGED}"
        )


def _newest(checkout: Path, source: Path | None, head: str) -> str:
    """The newest commit of the branch that this one follows, or of the clone in `source`."""
    name = _fetch_upstream(checkout) if source is None else _fetch_clone(checkout, source)
    newest = git(checkout, "rev-parse", "FETCH_HEAD" if source else "@{upstream}").strip()
    if not (_contains(checkout, newest, head) or _contains(checkout, head, newest)):
        raise CannotUpdate(
            f"You have commits that {name} has not. Make ordinary changes of them; this changes no "
            f"file: `git reset --soft $(git merge-base HEAD {newest[:12]})`. Then run `update` "
            f"again. {NOTHING_CHANGED}"
        )
    return newest


def _fetch_upstream(checkout: Path) -> str:
    """Fetch what the branch in this checkout follows; return its name."""
    try:
        name = git(checkout, "rev-parse", "--abbrev-ref", "@{upstream}").strip()
    except CannotUpdate:
        raise CannotUpdate(
            "The branch in this checkout follows no other one, so there is nothing to update from. "
            "`git checkout main` goes back to the branch that was cloned, and `git branch "
            "--set-upstream-to=origin/main` lets it follow that. Or take a newer clone of the "
            f"workbook: `update --from DIR`. {NOTHING_CHANGED}"
        ) from None
    try:
        git(checkout, "fetch", "--quiet", seconds=REMOTE_TIMEOUT_S)
    except CannotUpdate as error:
        raise CannotUpdate(
            f"{name} cannot be fetched ({error}). Is there a network? Without one, take a newer "
            f"clone of the workbook from a stick: `update --from DIR`. {NOTHING_CHANGED}"
        ) from None
    return name


def _fetch_clone(checkout: Path, source: Path) -> str:
    """Fetch what the clone in this folder has committed; return its name."""
    try:
        git(checkout, "fetch", "--quiet", str(source.expanduser().absolute()), "HEAD")
    except CannotUpdate as error:
        raise CannotUpdate(
            f"{source} is no clone of the workbook that git can read ({error}). A stick "
            f"needs the .git of the clone, and what is new must be committed. {NOTHING_CHANGED}"
        ) from None
    return str(source)


def _contains(checkout: Path, commit: str, ancestor: str) -> bool:
    """Whether `commit` is `ancestor` or comes after it."""
    try:
        git(checkout, "merge-base", "--is-ancestor", ancestor, commit)
    except CannotUpdate:
        return False
    return True


def changes(checkout: Path, old: str, new: str) -> list[Change]:
    """The files that differ between two editions, with what stands in the checkout."""
    words = git(checkout, "diff-tree", "-r", "-z", "--no-renames", "--raw", old, new).split("\0")
    differences = []
    for about, path in zip(words[::2], words[1::2], strict=False):
        _, mode, was, becomes, _ = about.split(" ")
        old_id, new_id = (
            blob.strip("0") and blob for blob in (was, becomes)
        )  # zeros: there is none
        differences.append(Change(path, old_id, new_id, mode == "100755"))
    here = _ids(checkout, [change.path for change in differences])
    return [replace(change, mine=here.get(change.path, "")) for change in differences]


def _ids(checkout: Path, paths: list[str]) -> dict[str, str]:
    """git's ids of what stands in the checkout; files that are not there are left out."""
    present = [path for path in paths if (checkout / path).is_file()]
    ids = git(checkout, "hash-object", "--stdin-paths", stdin="\n".join(present)).split()
    return dict(zip(present, ids, strict=True))


# What becomes of the files


def _bring(checkout: Path, file_changes: list[Change], target: str, outcome: Outcome) -> None:
    """Write the new edition over the old one; what only the reader has is laid beside first."""
    merged_pages: dict[str, tuple[bytes, dict]] = {}
    plain: dict[str, str] = {}
    for change in file_changes:
        file = checkout / change.path
        if change.mine == change.new and os.access(file, os.X_OK) == change.runs:
            continue  # also if both are gone
        if not change.new:
            if change.mine == change.old:
                outcome.removed_files.append(change.path)
            else:  # it stays, as a file of the reader's own
                name = Path(change.path).name
                places = [one.path for one in file_changes if one.new and not one.old]
                moved = [path for path in places if Path(path).name == name]
                outcome.kept[change.path] = next(iter(moved), "")
            continue
        if change.is_page and change.mine not in (change.old, change.new):
            read = file.read_bytes()
            try:
                page, conflicts = merge(
                    _page(checkout, change.old), _own(file), _page(checkout, change.new)
                )
            except pages.BadPage as problem:
                outcome.unchanged[change.path] = str(problem)
                continue
            if conflicts:
                aside = {**page, "cells": conflicts}
                outcome.aside[change.path] = len(conflicts), _beside(checkout, file, _text(aside))
            merged_pages[change.path] = read, page
            continue
        if change.mine not in ("", change.old, change.new):
            outcome.aside[change.path] = 0, _beside(checkout, file, file.read_bytes())
        plain[change.path] = change.mine
    now = _ids(checkout, [*plain])
    just_saved = {path for path, mine in plain.items() if now.get(path, "") != mine}
    outcome.unchanged |= dict.fromkeys(just_saved, JUST_SAVED)
    outcome.new_files += [path for path in plain if path not in just_saved]
    _check_out(checkout, target, outcome.new_files)
    for path, (read, page) in merged_pages.items():
        if (checkout / path).read_bytes() != read:
            outcome.unchanged[path] = JUST_SAVED
            continue
        pages.save(checkout / path, page)
        outcome.new_files.append(path)
    for path in outcome.removed_files:
        (checkout / path).unlink(missing_ok=True)


def _page(checkout: Path, blob: str) -> dict:
    return json.loads(git(checkout, "cat-file", "blob", blob))


def _own(file: Path) -> dict:
    """The reader's page. Raises BadPage unless it is one."""
    page = pages.load(file)
    try:
        [(cell["cell_type"], "".join(cell["source"])) for cell in page["cells"]]
    except (KeyError, TypeError):
        raise pages.BadPage(f"{file} is not a notebook, or only a part of one.") from None
    return page


def _text(page: dict) -> bytes:
    return (json.dumps(page, indent=1, ensure_ascii=False) + "\n").encode()


def _beside(checkout: Path, file: Path, data: bytes) -> Path:
    folder = checkout / "notebooks" / "work" / "pages"
    try:
        return write_numbered(folder, file.stem, file.suffix, data)
    except OSError as error:
        raise CannotUpdate(
            f"Your {file.name} could not be kept: {error}. {NOTHING_CHANGED}"
        ) from None


def _check_out(checkout: Path, tree: str, paths: list[str]) -> None:
    """Write these files of the tree, and leave git's index alone."""
    if not paths:
        return
    with tempfile.TemporaryDirectory(prefix="ddp-workbook-") as own:
        index = str(Path(own, "index"))
        git(checkout, "read-tree", tree, index=index)
        git(checkout, "checkout-index", "-f", "-z", "--stdin", stdin="\0".join(paths), index=index)
