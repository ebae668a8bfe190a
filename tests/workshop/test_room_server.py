"""The room that is served over the network: what it takes and refuses, and what is not lost."""

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ddp_workbook.page.room_client import attendee_news, connection, delivery, report
from ddp_workbook.page.room_client.report import BadRoom, join, leave_room, note_page, note_verdict
from ddp_workbook.workshop.room import board, server
from ddp_workbook.workshop.room.server import Bucket, Room, RoomServer
from tests.commands import run

CODE = "K7QF2M"
OWN = "0123456789abcdef"
ADVICE = "This is the sum. By how many numbers must it be divided?"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The room's folder; the current folder is an attendee's."""
    (tmp_path / "own").mkdir()
    (tmp_path / "room").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    monkeypatch.setattr(report, "VERDICT_WAIT_S", 60.0)  # however busy the machine is
    return tmp_path / "room"


@pytest.fixture
def room_server(folder):
    """A room that is served on loopback."""
    with RoomServer(Room(folder, CODE), "127.0.0.1", 0) as running:
        yield running


def only_attendee(folder: Path) -> board.Attendee:
    """The only attendee."""
    (attendee,) = board.read_board(folder).attendees
    return attendee


def ask(room_server: RoomServer, method="PUT", own=OWN, code=CODE, body=b"", path="") -> tuple:
    """A request as no kernel makes it: the status and what was said."""
    asking = http.client.HTTPConnection("127.0.0.1", room_server.port, timeout=30)
    try:
        asking.request(
            method, path or f"/attendees/{own}", body, {"Authorization": f"Bearer {code}"}
        )
        answer = asking.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        asking.close()


def news(name="ant", sent=0.0, **exercises: int) -> bytes:
    """What a kernel sends: exercises with their numbers of attempts."""
    now = sent or time.time()
    works = {
        exercise: {"state": "not yet", "attempts": attempts, "advice": "x", "time": now}
        for exercise, attempts in exercises.items()
    }
    message = {"name": name, "page": "", "time": now, "sent": now, "exercises": works}
    return json.dumps(message).encode()


# What an attendee does


def test_an_attendee_joins_works_and_leaves(room_server, folder):
    message = join(room_server.address + "/", " k7qf2m ", "blue otter")
    assert "You are in the room as blue otter" in message and "unencrypted" in message
    note_page("04_samplers")
    assert note_verdict("my_indices", "not yet", ADVICE) == ""
    attendee = only_attendee(folder)
    assert (attendee.name, attendee.page) == ("blue otter", "04_samplers")
    assert attendee.exercises["my_indices"].advice == ADVICE
    assert "removed" in leave_room()
    assert board.read_board(folder).attendees == []
    assert note_verdict("my_indices", "solved", "") == "" and leave_room().endswith("no room.")


def test_no_proxy_is_asked_for_a_machine_in_the_room(room_server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert "You are in the room" in join(room_server.address, CODE, "ant")


def test_a_server_that_is_started_again_gets_what_it_has_missed(folder, monkeypatch):
    """The code is the same; nobody has to run a cell, and no verdict waits."""
    monkeypatch.setattr(delivery, "MAX_PAUSE_S", 1.0)
    code = server.code_of(folder)
    with RoomServer(Room(folder, code), "127.0.0.1", 0) as first:
        join(first.address, code, "ant")
        port = first.port
    notice = note_verdict("where_is", "not yet", "Count the nodes.")
    assert "cannot be reached" in notice and "Nothing is lost" in notice
    assert only_attendee(folder).exercises == {}
    with RoomServer(Room(folder, server.code_of(folder)), "127.0.0.1", port):
        deadline = time.monotonic() + 60
        while not only_attendee(folder).exercises and time.monotonic() < deadline:
            time.sleep(0.05)
    assert only_attendee(folder).exercises["where_is"].attempts == 1


def test_no_page_waits_for_a_room_that_does_not_answer(folder, monkeypatch):
    """A machine that sleeps takes the connection and says nothing."""
    monkeypatch.setattr(connection, "TIMEOUT_S", 30.0)
    monkeypatch.setattr(report, "VERDICT_WAIT_S", 0.1)
    with RoomServer(Room(folder, CODE), "127.0.0.1", 0) as running:
        join(running.address, CODE, "ant")
        port = running.port
    asleep = socket.create_server(("127.0.0.1", port))
    with asleep:
        began = time.monotonic()
        note_verdict("where_is", "solved", "")
        note_page("04_samplers")
        assert time.monotonic() - began < 10


def test_leaving_a_room_that_is_gone(room_server, folder):
    join(room_server.address, CODE, "ant")
    room_server.loop.call_soon_threadsafe(room_server.server.stop)
    while True:
        try:
            socket.create_connection(("127.0.0.1", room_server.port), 1).close()
        except OSError:
            break
    assert "It still shows what you had shared" in leave_room()
    assert leave_room() == "You are in no room."


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("192.168.1.20:8765", "begins with http"),
        ("ftp://192.168.1.20", "begins with http"),
        ("http://", "begins with http"),
        ("http://h:8765/room?x=1", "nothing stands after the port"),
        ("http://me:secret@h:8765", "nothing stands after the port"),
        ("http://h:87650", "its port is a number"),
        ("", "begins with http"),
    ],
)
def test_an_address_that_is_none_is_refused(folder, address, words):
    with pytest.raises(BadRoom, match=words):
        join(address, CODE, "ant")
    assert not report.OWN.exists()


def test_what_is_said_where_no_room_is(room_server, folder, monkeypatch):
    monkeypatch.setattr(connection, "TIMEOUT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(BadRoom, match="nothing answers there as a room does"):
        join(f"http://127.0.0.1:{port}", CODE, "ant")
    with pytest.raises(BadRoom, match="nothing answers there as a room does"):
        join(room_server.address.replace("http:", "https:"), CODE, "ant")
    for name in ("", "x" * 41):
        with pytest.raises(BadRoom, match="1 to 40 letters"):
            join(room_server.address, CODE, name)
    with pytest.raises(BadRoom, match="letters and digits"):
        join(room_server.address, 'K7"', "ant")
    assert board.read_board(folder).attendees == []


def test_two_rooms_in_one_building(room_server, folder, tmp_path):
    """The code of another room is refused, and who is in a room stays there."""
    join(room_server.address, CODE, "ant")
    (tmp_path / "other").mkdir()
    other = RoomServer(Room(tmp_path / "other", "AAAAAA"), "127.0.0.1", 0)
    with other, pytest.raises(BadRoom, match="the code is not this room's"):
        join(other.address, CODE, "ant")
    note_verdict("where_is", "solved", "")
    assert only_attendee(folder).solved == ["where_is"]
    assert list((tmp_path / "other").iterdir()) == []


# What the server takes, and what it refuses


def test_a_wrong_code_learns_nothing(room_server, folder):
    """Whatever is asked for, whoever is there, the answer has no body and no name of a program."""
    assert ask(room_server, body=news())[0] == 204
    for method in ("GET", "PUT", "DELETE", "POST"):
        for own in (OWN, "f" * 16):
            status, body, headers = ask(room_server, method, own, code="WRONG2", body=b"{")
            assert (status, body) == (401, b"") and "Server" not in headers
    assert ask(room_server, "GET")[:2] == (405, b""), "nor does the right one read anything"
    for path in ("/", "/attendees", f"/attendees/{OWN}/", "/attendees/../.code", "/.code"):
        assert ask(room_server, "GET", path=path)[:2] == (404, b"")
    assert only_attendee(folder).name == "ant"


def test_a_code_that_is_guessed_at_a_thousand_a_second(room_server, folder):
    """After some guesses no code of a stranger counts; who is in the room goes on."""
    assert ask(room_server, body=news())[0] == 204
    answers = [ask(room_server, own="a" * 16, code=f"{n:06}", body=news())[0] for n in range(100)]
    assert answers[0] == 401 and answers[-1] == 429
    assert ask(room_server, own="a" * 16, body=news())[0] == 429, "the right code, by a stranger"
    assert ask(room_server, body=news(where_is=1))[0] == 204
    assert [attendee.name for attendee in board.read_board(folder).attendees] == ["ant"]
    assert room_server.room.refusal("a" * 16, f"Bearer {CODE}", "another address") == 0


def test_guesses_are_allowed_again_after_a_while(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(server.time, "monotonic", lambda: now[0])
    bucket = Bucket(rate=1, burst=2)
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    now[0] += 1.0
    assert [bucket.take() for _ in range(2)] == [True, False]


BAD = {
    "nothing": b"",
    "no object": b"[]",
    "no text": b"\xff\xfe",
    "deep": b"[" * 60_000,
    "no name": news(""),
    "long name": news("x" * 41),
    "an answer": news().replace(b'"exercises": {}', b'"exercises": {"a b": {}}'),
    "odd state": news(where_is=1).replace(b"not yet", b"def f():"),
    "odd time": news(sent=1e300),
    "many": news(**{f"e{n}": 1 for n in range(attendee_news.MAX_EXERCISES + 1)}),
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_what_is_not_an_attendee_s_news_is_refused_in_words(room_server, folder, body):
    status, said, _ = ask(room_server, body=body)
    assert status == 400 and said
    assert list(folder.iterdir()) == []


def test_what_is_not_in_the_format_is_not_kept(room_server, folder):
    body = json.loads(news(where_is=1)) | {"code": "import torch", "file": "secret"}
    body["exercises"]["where_is"] |= {"answer": "def where_is", "advice": "y" * 5000}
    assert ask(room_server, body=json.dumps(body).encode())[0] == 204
    text = (folder / f"{OWN}.json").read_text()
    assert "import" not in text and "secret" not in text and "def" not in text
    assert (
        len(only_attendee(folder).exercises["where_is"].advice) == attendee_news.MAX_ADVICE_LENGTH
    )


def test_more_than_the_largest_news_is_not_even_read(room_server, folder):
    with contextlib.suppress(OSError):  # it may hang up
        assert ask(room_server, body=b"x" * (attendee_news.MAX_NEWS_BYTES + 1))[0] in (400, 413)
    assert list(folder.iterdir()) == []


def test_one_attendee_cannot_keep_the_server_busy(room_server):
    answers = [ask(room_server, body=news())[0] for _ in range(300)]
    assert answers[0] == 204 and 429 in answers
    assert ask(room_server, own="b" * 16, body=news())[0] == 204, "others are not slower for it"


def test_a_room_that_is_full(folder):
    with RoomServer(Room(folder, CODE, most=2), "127.0.0.1", 0) as running:
        answers = [ask(running, own=own * 16, body=news())[0] for own in "abc"]
        assert answers == [204, 204, 503]
        assert ask(running, own="a" * 16, body=news())[0] == 204
        with pytest.raises(BadRoom, match="the room is full"):
            join(running.address, CODE, "late")


def test_an_invented_attendee_gives_place_to_a_newcomer(folder, monkeypatch):
    """One who never came back; those who did keep their places. The instructor hears of it."""
    with RoomServer(Room(folder, CODE, most=2), "127.0.0.1", 0) as running:
        for own in "aab":
            assert ask(running, own=own * 16, body=news(own))[0] == 204
        assert ask(running, own="c" * 16, body=news("c"))[0] == 503
        assert "turned away" in running.room.warning()
        monkeypatch.setattr(server, "SILENT_AFTER_S", -1.0)
        assert ask(running, own="c" * 16, body=news("c"))[0] == 204
        assert running.room.warning() == ""
    names = [attendee.name for attendee in board.read_board(folder).attendees]
    assert names == ["a", "c"]


def test_one_address_cannot_fill_the_room_at_once(folder):
    """A class behind one address gets in; those who are in, and other addresses, go on."""
    room = Room(folder, CODE)
    (folder / f"{OWN}.json").touch()
    refusals = [room.refusal(f"{n:016x}", f"Bearer {CODE}", "one address") for n in range(300)]
    assert refusals[:60] == [0] * 60 and refusals[100:] == [429] * 200
    assert room.refusal(OWN, f"Bearer {CODE}", "one address") == 0
    assert room.refusal("f" * 16, f"Bearer {CODE}", "another address") == 0


def connections(port: int, count: int, source: str = "127.0.0.1") -> list[socket.socket]:
    """So many connections over which nothing is asked."""
    where = ("127.0.0.1", port)
    return [socket.create_connection(where, 30, (source, 0)) for _ in range(count)]


def is_closed(connection: socket.socket, wait: float = 0.05) -> bool:
    """Whether the server has closed it, or does so in `wait` seconds."""
    connection.settimeout(wait)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_idle_connections_of_strangers_are_bounded(folder, monkeypatch):
    """In all and by address: the oldest one gives place to the next."""
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 6)
    monkeypatch.setattr(server, "MAX_CONNECTIONS_OF_ADDRESS", 4)
    with RoomServer(Room(folder, CODE), "127.0.0.1", 0) as running:
        first = connections(running.port, 5)
        assert is_closed(first[0], 30) and not any(map(is_closed, first[1:]))
        second = connections(running.port, 3, "127.0.0.2")
        assert is_closed(first[1], 30) and not any(map(is_closed, [*first[2:], *second]))
        assert ask(running, body=news())[0] == 204
        for one in [*first, *second]:
            one.close()


def test_the_board_outlives_more_idle_connections_than_it_has_descriptors(folder):
    """A shell on macOS has 256."""
    import resource

    page = folder / "page.html"
    serve = ["room", "--serve", "--address", "127.0.0.1", "--port", "0", "--every", "0.5"]
    line = [sys.executable, "-c", "from ddp_workbook.cli import app; app()", *serve]
    with subprocess.Popen(
        [*line, "--folder", str(folder), "--page", str(page)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),
    ) as running:
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)", running.stdout.readline())[1])
        idle = [one for n in range(2, 6) for one in connections(port, 80, f"127.0.0.{n}")]
        try:
            message = join(f"http://127.0.0.1:{port}", server.code_of(folder), "ant")
            assert "You are in the room" in message
            deadline = time.monotonic() + 30
            while "The room: 1 person" not in page.read_text() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert "The room: 1 person" in page.read_text() and running.poll() is None
            assert page.stat().st_mode & 0o777 == 0o600, "it has the room's code"
        finally:
            running.terminate()
            for one in idle:
                one.close()


def test_older_news_that_arrive_last_replace_nothing(room_server, folder):
    """Two pages of one attendee send at once."""
    assert ask(room_server, body=news(where_is=3, my_indices=1))[0] == 204
    assert ask(room_server, body=news(where_is=2))[0] == 204
    result = only_attendee(folder).exercises
    assert {name: work.attempts for name, work in result.items()} == {
        "where_is": 3,
        "my_indices": 1,
    }


def guess_news(own: int, now: str, count: int = 1) -> bytes:
    """What a kernel sends after a click."""
    message = json.loads(news(f"ant {own}"))
    guess = {"first": "a", "now": now, "chosen": count, "time": message["time"]}
    return json.dumps(message | {"guesses": {"order_of_greetings": guess}}).encode()


def test_fifty_people_click_at_once_and_again_after_talking(room_server, folder):
    """The older click of a page arrives last, and counts no more."""
    people = [(n, f"{n:016x}") for n in range(50)]
    with ThreadPoolExecutor(50) as pool:
        for count, letters in ((1, "a"), (3, "abc"), (2, "b")):
            bodies = [guess_news(n, letters[n % len(letters)], count) for n, _ in people]
            requests = [
                pool.submit(ask, room_server, own=own, body=body)
                for (_, own), body in zip(people, bodies, strict=True)
            ]
            assert {request.result()[0] for request in requests} == {204}
    (spread,) = board.read_board(folder).spreads()
    assert spread.counts == [("a", 50, 17), ("b", 0, 17), ("c", 0, 16)]


@pytest.mark.parametrize("wrong", [-7200.0, 7200.0])
def test_a_clock_that_is_two_hours_off_does_not_matter(room_server, folder, wrong):
    assert ask(room_server, body=news(sent=time.time() + wrong, where_is=1))[0] == 204
    attendee = only_attendee(folder)
    for moment in (attendee.time, attendee.exercises["where_is"].time):
        assert abs(moment - time.time()) < 60


# The command


def test_the_command_says_where_and_with_which_code(folder):
    """On the terminal and on the page to project; again, with the same code."""
    serve = ("--serve", "--address", "127.0.0.1", "--port", 0, "--folder", folder, "--once")
    codes = set()
    for _ in range(2):
        status, output = run("room", *serve)
        assert status == 0 and "Without --certificate" in output
        match = re.search(r'join\("(http://127\.0\.0\.1:\d+)", "(\w{6})", "a name"\)', output)
        codes.add(match[2])
        assert f"&quot;{match[2]}&quot;" in (folder / "room.html").read_text()
    assert len(codes) == 1
    assert (folder / server.CODE_FILE).stat().st_mode & 0o777 == 0o600


def test_a_port_that_is_taken_and_an_address_of_another_machine(folder, room_server):
    here = ("--serve", "--folder", folder, "--once")
    for where in (("127.0.0.1", room_server.port), ("203.0.113.5", 0)):
        status, output = run("room", *here, "--address", where[0], "--port", where[1])
        assert status == 2 and f"Nothing can listen on {where[0]}, port {where[1]}" in output


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--folder", "x", "--address", "127.0.0.1"),
        ("--serve", "--key", "key.pem", "--address", "127.0.0.1"),
        ("--serve", "--certificate", "no.pem", "--address", "127.0.0.1"),
    ],
    ids=" ".join,
)
def test_options_that_do_not_fit_each_other(folder, words):
    assert run("room", *words)[0] == 2


def test_a_damaged_code_is_said_and_nothing_is_served(folder):
    (folder / server.CODE_FILE).write_text("")
    status, said = run("room", "--serve", "--address", "127.0.0.1", "--folder", folder)
    assert status == 2 and "delete it, and a new one is made" in said


@pytest.mark.long
def test_nothing_listens_unless_it_is_asked_for(folder):
    """Neither a page nor the room of a folder brings the server along."""
    code = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell as S\n"
        "S.instance().run_line_magic('load_ext', 'ddp_workbook')\n"
        "from ddp_workbook import join_room; join_room('ant', sys.argv[1])\n"
        "from typer.testing import CliRunner; from ddp_workbook import cli\n"
        "assert not CliRunner().invoke(cli.app, ['room', '--once', '--folder', sys.argv[1]])"
        ".exit_code\n"
        "assert 'ddp_workbook.workshop.room.server' not in sys.modules\n"
        "import psutil; print([c for c in psutil.Process().net_connections('inet')])"
    )
    line = [sys.executable, "-c", code, folder]
    result = subprocess.run(line, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_with_a_certificate_the_traffic_is_encrypted(folder, tmp_path, monkeypatch):
    """One that is not trusted is refused in words; trusted, everything works."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    line += ["-subj", "/CN=room", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*line, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    secure = server.encryption(certificate, key)
    with RoomServer(Room(folder, CODE), "127.0.0.1", 0, secure) as running:
        assert running.address.startswith("https://")
        with pytest.raises(BadRoom, match=r"certificate is not trusted here.*SSL_CERT_FILE"):
            join(running.address, CODE, "ant")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        message = join(running.address, CODE, "ant")
        assert "unencrypted" not in message and only_attendee(folder).name == "ant"
