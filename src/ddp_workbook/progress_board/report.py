"""What an attendee's kernels write to the room's folder: progress, and never an answer.

Each attendee has one file there, replaced as a whole by rename, so that no lock is needed and a
reader on a network file system sees an old version or a new one. Its source is a folder beside
the attempts, work/room, with one small file an exercise: kernels of several open pages write there
without overwriting each other's news, and nothing is lost while the room cannot be reached.
"""

import contextlib
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

from ddp_workbook.errors import WorkbookError
from ddp_workbook.files import write_whole

VARIABLE = "WORKBOOK_ROOM"
OWN = Path("work") / "room"
JOINED, PAGE = "joined.json", "page.json"
LONGEST_NAME = 40
READABLE = 0o644  # by the instructor, whatever this account's umask is
LOST = (
    "The room's folder cannot be written now, so the instructor does not see this yet: {why}. "
    "Nothing is lost; it is sent with your next answer."
)


class BadRoom(WorkbookError, ValueError):
    """A room or a name that cannot be used."""


def join_room(name: str, folder: str | Path | None = None) -> str:
    """Share your progress with the instructor under a name that you choose; return what was done.

    `folder` is the room, by default the one in the variable WORKBOOK_ROOM. What is shared: the
    name, the page, and for each exercise whether it is solved, the number of attempts and the
    advice of the last verdict. Your code is not. `leave_room()` ends it.

    Raises:
        BadRoom: no room is named, it is not a folder that can be written, or the name is empty or
            longer than 40 characters.
    """
    shown = " ".join("".join(c if c.isprintable() else " " for c in str(name)).split())
    if not 0 < len(shown) <= LONGEST_NAME:
        raise BadRoom(f"Choose a name of 1 to {LONGEST_NAME} letters, not {str(name)[:60]!r}.")
    if not (wanted := folder or os.environ.get(VARIABLE)):
        raise BadRoom(
            f"Which room? Ask the instructor for its folder: join_room({shown!r}, 'folder')."
        )
    room = Path(wanted).expanduser().absolute()
    old = _read(OWN / JOINED)
    own = old.get("id") or secrets.token_hex(8)
    joined = {"name": shown, "id": own, "room": str(room), "since": time.time()}
    if not room.is_dir():
        raise BadRoom(f"There is no folder {room}. Ask the instructor for the room's folder.")
    try:
        _save(JOINED, joined)
    except OSError as error:
        raise BadRoom(f"Nothing can be saved under {OWN.absolute()}: {error.strerror}.") from None
    if problem := send():
        (OWN / JOINED).unlink(missing_ok=True)
        raise BadRoom(f"The room {room} cannot be written: {problem}.")
    return f"You are in the room as {shown}. leave_room() takes you out of it."


def leave_room() -> str:
    """Stop sharing, and remove your file from the room; return what was done."""
    joined = _read(OWN / JOINED)
    if not joined:
        return "You are in no room."
    with contextlib.suppress(OSError):
        (Path(joined["room"]) / f"{joined['id']}.json").unlink()
    (OWN / JOINED).unlink(missing_ok=True)
    return "You have left the room, and your file there is removed."


def note_page(stem: str) -> None:
    """Remember which page is open, and tell the room if one was joined."""
    if _read(OWN / JOINED) and _read(OWN / PAGE).get("page") != stem:
        with contextlib.suppress(OSError):
            _save(PAGE, {"page": stem})
        send()


def note_verdict(exercise: str, state: str, advice: str) -> str:
    """Count an attempt and tell the room if one was joined; a sentence if that did not work."""
    if not _read(OWN / JOINED):
        return ""
    before = _read(OWN / f"{exercise}.json")
    news = {
        "state": "solved" if "solved" in (state, before.get("state")) else state,
        "attempts": int(before.get("attempts", 0)) + 1,
        "advice": advice,
        "time": time.time(),
    }
    try:
        _save(f"{exercise}.json", news)
    except OSError as error:
        return LOST.format(why=error.strerror)
    problem = send()
    return LOST.format(why=problem) if problem else ""


def send() -> str:
    """Write everything that is known here to the room; why not, if that fails, else ""."""
    joined = _read(OWN / JOINED)
    if not joined:
        return ""
    exercises = {
        path.stem: _read(path)
        for path in sorted(OWN.glob("*.json"))
        if path.name not in (JOINED, PAGE)
    }
    shared = {
        "name": joined["name"],
        "page": _read(OWN / PAGE).get("page", ""),
        "time": time.time(),
        "exercises": {name: news for name, news in exercises.items() if news},
    }
    room = Path(joined["room"])
    if not room.is_dir():  # do not make it again: it may be a disk that is not mounted now
        return f"{room} is not there"
    try:
        own = write_whole(room / f"{joined['id']}.json", json.dumps(shared, indent=1))
        with contextlib.suppress(OSError):  # not every file system has permissions
            own.chmod(READABLE)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _save(name: str, value: dict[str, Any]) -> None:
    write_whole(OWN.absolute() / name, json.dumps(value))


def _read(path: Path) -> dict[str, Any]:
    """A file of ours; empty if it is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
