"""What an attendee's kernels tell the room: progress and guesses, and never an exercise's answer.

Its source is a folder beside the attempts, work/room, with one small file an exercise, and one a
question: kernels of several open pages write there without overwriting each other's news. All of
it is sent each time, in the background, until the room has taken it: nothing is lost while the room
cannot be reached.
"""

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddp_workbook.page.room_client.attendee_news import (
    Attendee,
    clean_name,
    parse_guess,
    progress,
    word,
)
from ddp_workbook.page.room_client.connection import Folder, Server, readable_address
from ddp_workbook.page.room_client.delivery import BackgroundSender
from manyranks.errors import WorkbookError
from manyranks.files import write_atomically

VARIABLE = "WORKBOOK_ROOM"
OWN = Path("work") / "room"
GUESSES = OWN / "guesses"
JOINED, PAGE = "joined.json", "page.json"
SENDING = threading.Lock()  # leaving waits for news that are on their way
VERDICT_WAIT_S = 0.5  # seconds that a verdict waits to hear whether the room has it
HEARTBEAT_S = 20.0  # seconds between two signs of somebody who runs cells
UNREACHABLE = (
    "The room cannot be reached now, so the instructor does not see this yet: {why}. Nothing is "
    "lost: it is sent as soon as the room answers."
)
UNENCRYPTED = (
    "What you share crosses the network unencrypted: choose a name that everybody may read."
)


class BadRoom(WorkbookError, ValueError):
    """A room or a name that cannot be used."""


def join(address: str, code: str, name: str) -> str:
    """Share your progress with the instructor's machine; return what was done.

    `address` and `code` are those on the projector, such as "http://192.168.1.20:8765" and
    "K7QF2M"; `name` is one that you choose. What is shared: this name, the page, when you run
    cells, for each exercise whether it is solved, the number of attempts and the advice of the last
    verdict, and from now on your guesses, which the room sees as counts. Your code is not.
    `leave_room()` ends it.

    Raises:
        BadRoom: the address is none, no room answers there, the code is another room's, or the name
            is empty or longer than 40 characters.
    """
    try:
        server_address = readable_address(address)
    except ValueError as error:
        raise BadRoom(f"{str(address)[:60]!r} is no address of a room: {error}.") from None
    code = "".join(str(code).split()).upper()
    if not code.isascii() or not code.isalnum():
        raise BadRoom("The code is letters and digits: copy it from the projector.")
    joined = _join(
        name,
        {"address": server_address, "code": code},
        f"The room at {server_address} did not let you in",
    )
    return joined if server_address.startswith("https") else f"{joined} {UNENCRYPTED}"


def join_room(name: str, folder: str | Path | None = None) -> str:
    """Share your progress through a folder that all machines see; return what was done.

    `folder` is the room, by default the one in the variable WORKBOOK_ROOM. `name` is one that you
    choose; what is shared is what `join` shares. `leave_room()` ends it.

    Raises:
        BadRoom: no room is named, it is not a folder that can be written, or the name is empty or
            longer than 40 characters.
    """
    if not (place := folder or os.environ.get(VARIABLE)):
        raise BadRoom(
            f"Which room? Ask the instructor for its folder: join_room({str(name)[:60]!r}, "
            "'folder'), or for address and code: join('http://...', 'code', 'name')."
        )
    room = Path(place).expanduser().absolute()
    if not room.is_dir():
        raise BadRoom(f"There is no folder {room}. Ask the instructor for the room's folder.")
    return _join(name, {"room": str(room)}, f"The room {room} cannot be written")


def _join(name: str, where: dict[str, str], refusal: str) -> str:
    """Note which room it is, and send what is there; BadRoom if the room does not take it."""
    try:
        display_name = clean_name(name)
    except ValueError as error:
        raise BadRoom(f"Choose another name: {error}.") from None
    before = _read(OWN / JOINED)
    own = before.get("id") or secrets.token_hex(8)
    try:
        _save(JOINED, {"name": display_name, "id": own, "since": time.time(), **where})
    except OSError as error:
        raise BadRoom(f"Nothing can be saved under {OWN.absolute()}: {error.strerror}.") from None
    if problem := send():
        if before:  # still in the room that it was in
            _save(JOINED, before)
        else:
            (OWN / JOINED).unlink(missing_ok=True)
        raise BadRoom(f"{refusal}: {problem}.")
    return f"You are in the room as {display_name}. leave_room() takes you out of it."


def leave_room() -> str:
    """Stop sharing, and take your news out of the room; return what was done."""
    with SENDING:
        if not (joined := _read(OWN / JOINED)):
            return "You are in no room."
        (OWN / JOINED).unlink(missing_ok=True)
        problem = _connection(joined).remove()
    if problem:
        return f"You have left the room. It still shows what you had shared: {problem}."
    return "You have left the room, and your news there are removed."


class Heartbeat:
    """Called after each cell: tells the room that somebody is at work, and on which page."""

    def __init__(self, this_page: Callable[[], Path | None]):
        self.this_page, self.page, self.last = this_page, "", 0.0

    def __call__(self, *_: object) -> None:
        """Nothing if no room was joined, or if it heard of this kernel a moment ago."""
        is_recent = self.last and time.monotonic() - self.last < HEARTBEAT_S
        if is_recent or not (OWN / JOINED).exists():
            return
        self.last = time.monotonic()
        self.page = self.page or getattr(self.this_page(), "stem", "")
        note_page(self.page)


def note_page(stem: str) -> None:
    """Remember which page is open and when a cell ran, and tell the room if one was joined."""
    if _read(OWN / JOINED):
        page = stem or _read(OWN / PAGE).get("page", "")
        with contextlib.suppress(OSError):
            _save(PAGE, {"page": page, "time": time.time()})
        DELIVERY.send_soon(wait=0)


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
        "began": before.get("began", time.time()),
    }
    try:
        _save(f"{exercise}.json", news)
    except OSError as error:
        return f"{OWN.absolute()} cannot be written: {error.strerror}. The room misses this news."
    problem = DELIVERY.send_soon(VERDICT_WAIT_S)
    return UNREACHABLE.format(why=problem) if problem else ""


def note_guess(question: str, first: str, now: str) -> None:
    """Tell the room of a guess, if one was joined: the first one, and the one of now."""
    if not _read(OWN / JOINED):
        return
    before = _read(GUESSES / f"{question}.json")
    news = {"first": first, "now": now, "chosen": int(before.get("chosen", 0)) + 1}
    with contextlib.suppress(OSError):
        _save(f"guesses/{question}.json", news | {"time": before.get("time", time.time())})
        DELIVERY.send_soon(wait=0)


def send() -> str:
    """Send everything that is known here to the room; why not, if that fails, else ""."""
    with SENDING:
        joined = _read(OWN / JOINED)
        try:
            return _connection(joined).put(local_news(joined).text()) if joined else ""
        except (ValueError, KeyError) as error:
            return f"{OWN / JOINED} is damaged: join again ({error})"


def local_news(joined: dict[str, Any]) -> Attendee:
    """All that is noted here; a damaged file is left out."""
    exercises, guesses = {}, {}
    for path in GUESSES.glob("*.json"):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            guesses[word(path.stem)] = parse_guess(_read(path))
    for path in OWN.glob("*.json"):
        if path.name not in (JOINED, PAGE):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                exercises[word(path.stem)] = progress(_read(path))
    page, since = _read(OWN / PAGE), joined.get("since", 0.0)
    latest = max([since, page.get("time", 0.0), *(work.time for work in exercises.values())])
    name, now = joined["name"], time.time()
    return Attendee(name, page.get("page", ""), latest, exercises, since, now, guesses)


def _connection(joined: dict[str, Any]) -> Folder | Server:
    if "address" in joined:
        return Server(joined["address"], joined["code"], joined["id"])
    return Folder(Path(joined["room"]), joined["id"])


def _save(name: str, value: dict[str, Any]) -> None:
    write_atomically(OWN.absolute() / name, json.dumps(value))


def _read(path: Path) -> dict[str, Any]:
    """A file of ours; empty if it is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


DELIVERY = BackgroundSender(send)
