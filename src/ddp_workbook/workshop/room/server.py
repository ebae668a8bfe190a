"""The room without a shared disk: a small server on the instructor's machine, if asked for.

It listens on one address, takes what `shared` describes from those who know the room's code, and
writes it into the room's folder, a file an attendee, where the board reads it. It gives nothing
out. It takes no answer, no file and no other path, and bounds the size, the rate and the number of
what it takes; guessing the code is slow however fast somebody asks. Open connections are bounded as
well: those of strangers who send nothing must not use up this process's descriptors, which the
board needs.
"""

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import shlex
import socket
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.web import Application, RequestHandler

from ddp_workbook.page.room_client.attendee_news import MAX_NEWS_BYTES, parse_news
from manyranks.errors import WorkbookError
from manyranks.files import write_atomically

PORT = 8765
CODE_FILE = ".code"  # in the room's folder: a server that is started again has the same code
CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # without I, O, 0 and 1
CODE_LENGTH = 6  # of the code: 32**6 are 30 bits
MAX_PEOPLE, MAX_ADDRESSES = 300, 1000
SILENT_AFTER_S = 300.0  # seconds without a second request, after which an attendee may be replaced
# Open connections. All attendees of a hub have one address, and may click at the same moment.
MAX_CONNECTIONS, MAX_CONNECTIONS_OF_ADDRESS = 400, 100
OTHER_DESCRIPTORS = 64  # for the board, its page and Python itself
REQUEST_TIMEOUT_S = 10.0  # seconds for a request to arrive
UNENCRYPTED = (
    "Without --certificate, whoever reads the network's traffic reads names, progress and the code."
)
NOWHERE = ("192.0.2.1", 9)  # reserved for documentation (RFC 5737); nothing is sent there


@dataclass
class Bucket:
    """A token bucket: `burst` requests at once, then `rate` in a second."""

    rate: float
    burst: float
    tokens: float = field(init=False)
    at: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens, self.at = self.burst, time.monotonic()

    def fill(self) -> float:
        """How many requests may come now."""
        now = time.monotonic()
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        return self.tokens

    def take(self) -> bool:
        """Whether one more request may come; counts it."""
        is_allowed = self.fill() >= 1
        self.tokens -= is_allowed
        return is_allowed


class Room:
    """What the server knows: the folder, the code, and how often whom it was asked."""

    def __init__(self, folder: Path, code: str, most: int = MAX_PEOPLE):
        self.folder, self.code, self.most = folder, code, most
        # by the address that guesses, and by the attendee who sends
        self.guesses: defaultdict[str, Bucket] = defaultdict(lambda: Bucket(rate=1, burst=20))
        self.updates: defaultdict[str, Bucket] = defaultdict(lambda: Bucket(rate=20, burst=40))
        # by the address that sends attendees who are new; a whole class may share one
        self.newcomers: defaultdict[str, Bucket] = defaultdict(lambda: Bucket(rate=0.5, burst=60))
        self.requests: Counter[str] = Counter()  # that were taken from each attendee
        self.turns_away = False  # whether the newcomer who came last found no place

    def path(self, own: str) -> Path:
        """The file of one attendee."""
        return self.folder / f"{own}.json"

    def refusal(self, own: str, authorization: str, asker: str) -> int:
        """The status that refuses this request, or 0.

        After too many wrong codes from one address, no code of a stranger there is looked at for a
        while, the right one neither: trying all codes would take 34 years. Others hear nothing of
        that, and those who are in the room go on. Who has the code cannot fill the room at once
        with attendees that they have invented.
        """
        for buckets in (self.guesses, self.newcomers):
            if len(buckets) > MAX_ADDRESSES:
                buckets.clear()
        guesses, known = self.guesses[asker], self.path(own).exists()
        if not known and guesses.fill() < 1:
            return 429
        credentials = authorization.encode("utf-8", "replace")
        if not hmac.compare_digest(credentials, f"Bearer {self.code}".encode()):
            return 401 if guesses.take() else 429
        if not known and self.is_full() and self.silent_attendee() is None:
            self.turns_away = True
            return 503
        if not known:
            self.turns_away = False
            if not self.newcomers[asker].take():
                return 429
        return 0 if self.updates[own].take() else 429

    def is_full(self) -> bool:
        """Whether no further attendee has a place."""
        return sum(1 for _ in self.folder.glob("*.json")) >= self.most

    def silent_attendee(self) -> Path | None:
        """The file of the attendee who joined longest ago of those who never came back.

        They may have been invented to fill the room. Somebody who is real loses nothing: their next
        request brings all of their news again.
        """
        silent = []
        for path in self.folder.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                joined = path.stat().st_mtime
                if self.requests[path.stem] <= 1 and time.time() - joined > SILENT_AFTER_S:
                    silent.append((joined, path))
        return min(silent)[1] if silent else None

    def make_place(self, own: str) -> None:
        """In a full room, a newcomer takes the place of somebody who never came back."""
        if self.path(own).exists() or not self.is_full():
            return
        if silent := self.silent_attendee():
            silent.unlink(missing_ok=True)
            self.forget(silent.stem)

    def forget(self, own: str) -> None:
        """Drop what was counted of an attendee who is not in the room any more."""
        self.updates.pop(own, None)
        self.requests.pop(own, None)

    def warning(self) -> str:
        """What the instructor should know of the room now, or ""."""
        if not self.turns_away:
            return ""
        return (
            f"The room is full: it has {self.most} attendees, and newcomers are turned away. If "
            f"some are invented, `ddp-workbook room --folder {shlex.quote(str(self.folder))} "
            "--remove NAME` takes all with that name out. A room in another folder has another "
            "code."
        )


class AttendeeHandler(RequestHandler):
    """PUT and DELETE /attendees/<16 hexadecimal digits>, which its owner alone knows."""

    def initialize(self, room: Room) -> None:
        """Called by tornado."""
        self.room = room

    def set_default_headers(self) -> None:
        """Say neither which server it is nor which version."""
        self.clear_header("Server")

    def write_error(self, status_code: int, **_: object) -> None:
        """No page and no traceback."""
        self.finish()

    def prepare(self) -> None:
        """Before any method: who has no right code learns nothing else."""
        authorization = self.request.headers.get("Authorization", "")
        asker = self.request.remote_ip or ""
        if status := self.room.refusal(self.path_args[0], authorization, asker):
            self.set_status(status)
            self.finish()

    def put(self, own: str) -> None:
        """Take an attendee's news, in times of this machine's clock."""
        try:
            news = parse_news(self.request.body).by_the_clock(time.time())
        except ValueError as error:
            self.set_status(400)
            self.finish(str(error))
            return
        path = self.room.path(own)
        self.room.make_place(own)
        with contextlib.suppress(OSError, ValueError):
            news = news.with_news_of(parse_news(path.read_bytes()))
        try:
            write_atomically(path, news.text())
        except OSError as error:
            self.set_status(400)
            self.finish(f"the instructor's disk does not take it: {error.strerror}")
            return
        self.room.requests[own] += 1
        self.set_status(204)

    def delete(self, own: str) -> None:
        """Remove an attendee's news."""
        self.room.path(own).unlink(missing_ok=True)
        self.room.forget(own)
        self.set_status(204)


class NotFoundHandler(AttendeeHandler):
    """Any other path: nothing is there, whoever asks."""

    def initialize(self) -> None:  # type: ignore[override]
        """Called by tornado, without a room."""

    def prepare(self) -> None:
        """The same answer for every method."""
        self.set_status(404)
        self.finish()


class BoundedHTTPServer(HTTPServer):
    """Of too many open connections, it closes the one that has been open longest.

    So a newcomer gets in while somebody holds all the connections that there are.
    """

    def initialize(  # type: ignore[override]
        self, *words: Any, most: int, most_of_address: int, **options: Any
    ) -> None:
        """Called by tornado."""
        super().initialize(*words, **options)
        self.most, self.most_of_address = most, most_of_address
        self.askers: dict[IOStream, str] = {}  # open connections, the oldest first

    def handle_stream(self, stream: IOStream, address: tuple) -> None:
        """Called by tornado for each new connection."""
        asker = address[0]
        of_asker = [other for other, its_asker in self.askers.items() if its_asker == asker]
        if len(of_asker) >= self.most_of_address:
            self.hang_up(of_asker[0])
        elif len(self.askers) >= self.most:
            self.hang_up(next(iter(self.askers)))
        self.askers[stream] = asker
        super().handle_stream(stream, address)

    def hang_up(self, stream: IOStream) -> None:
        """Close a connection; the one who asks over it tries again later."""
        del self.askers[stream]
        stream.close()

    def on_close(self, server_conn: Any) -> None:
        """Called by tornado when a connection has ended."""
        self.askers.pop(server_conn.stream, None)
        super().on_close(server_conn)


def connection_limit() -> int:
    """How many connections may be open here: the limit of open files is raised if it can be.

    A shell on macOS has 256 descriptors, one on Linux 1,024.
    """
    try:
        import resource
    except ImportError:  # Windows
        return MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        return max(1, raised - OTHER_DESCRIPTORS)
    return MAX_CONNECTIONS


def code_of(folder: Path) -> str:
    """The room's code; made at the first call, and readable for this account alone."""
    path = folder / CODE_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            code = "".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_LENGTH))
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(code)
        code = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise WorkbookError(f"{path} cannot be used for the room's code: {error}.") from None
    if len(code) < CODE_LENGTH or not code.isalnum():
        raise WorkbookError(f"{path} holds no code: delete it, and a new one is made.")
    return code


def own_address() -> str:
    """This machine's address in its network; WorkbookError if it is in none."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(NOWHERE)  # chooses a route, and sends nothing
            return probe.getsockname()[0]
    except OSError:
        raise WorkbookError(
            "This machine has no network now. Join one, or name its address with --address."
        ) from None


def encryption(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """TLS with this certificate, None without one; WorkbookError if it cannot be used."""
    if certificate is None:
        if key is not None:
            raise WorkbookError("--key needs --certificate, the file with its certificate.")
        return None
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        secure.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise WorkbookError(f"{certificate} cannot be used as a certificate: {error}.") from None
    return secure


class RoomServer:
    """Serves while the `with` block runs, in a thread; `address` is what attendees type.

    Raises WorkbookError if it cannot listen there.
    """

    def __init__(
        self, room: Room, host: str, port: int = PORT, secure: ssl.SSLContext | None = None
    ):
        self.room, self.host, self.port, self.secure = room, host, port, secure

    @property
    def address(self) -> str:
        """Such as http://192.168.1.20:8765."""
        return f"http{'s' if self.secure else ''}://{self.host}:{self.port}"

    def __enter__(self) -> "RoomServer":
        try:
            listener = socket.create_server((self.host, self.port))
        except (OSError, OverflowError) as error:
            raise WorkbookError(
                f"Nothing can listen on {self.host}, port {self.port}: {error}. Another server may "
                "have the port (--port names another one), or the address is not this machine's."
            ) from None
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        logging.getLogger("tornado").setLevel(logging.CRITICAL)  # strangers' requests are no news
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True, name="server")
        self.thread.start()
        self._call(lambda: self._serve(listener))
        return self

    def _serve(self, listener: socket.socket) -> None:
        routes = [(r"/attendees/([0-9a-f]{16})", AttendeeHandler, {"room": self.room})]
        app = Application(
            routes, default_handler_class=NotFoundHandler, log_function=lambda _: None
        )
        self.server = BoundedHTTPServer(
            app,
            most=connection_limit(),
            most_of_address=MAX_CONNECTIONS_OF_ADDRESS,
            ssl_options=self.secure,
            max_body_size=MAX_NEWS_BYTES,
            max_header_size=8192,
            idle_connection_timeout=REQUEST_TIMEOUT_S,
            body_timeout=REQUEST_TIMEOUT_S,
        )
        self.server.add_socket(listener)

    def _call(self, step: Callable[[], None]) -> None:
        """Run one step in the server's thread, and wait for it."""

        async def run_step() -> None:
            step()

        asyncio.run_coroutine_threadsafe(run_step(), self.loop).result()

    def __exit__(self, *_: object) -> None:
        self._call(self.server.stop)
        asyncio.run_coroutine_threadsafe(self.server.close_all_connections(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
