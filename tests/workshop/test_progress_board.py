"""The progress board: what attendees choose to share, and what the instructor sees of it."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from ddp_workbook.judging.catalogue import Exercise
from ddp_workbook.judging.magics import ExerciseMagics
from ddp_workbook.page import guesses, predictions
from ddp_workbook.page.questions import find
from ddp_workbook.page.room_client import attendee_news, report
from ddp_workbook.page.room_client.report import (
    BadRoom,
    join_room,
    leave_room,
    note_page,
    note_verdict,
)
from ddp_workbook.workshop.room import board, views
from tests.commands import run
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)

CHOICE, NUMBER = "order_of_greetings", "sum_of_six_ranks"  # c is right, and 21
ADVICE = "This is the sum. By how many numbers must it be divided?"


@pytest.fixture
def room(tmp_path, monkeypatch) -> Path:
    """An empty room; the current folder is an attendee's."""
    folder, own = tmp_path / "room", tmp_path / "own"
    folder.mkdir()
    own.mkdir()
    monkeypatch.chdir(own)
    monkeypatch.setenv(report.VARIABLE, str(folder))
    monkeypatch.setattr(report, "VERDICT_WAIT_S", 60.0)  # however busy the machine is
    return folder


def one_file(room: Path) -> Path:
    """The only file in the room, hidden ones included."""
    (path,) = room.iterdir()
    return path


def only_attendee(room: Path) -> board.Attendee:
    """The only attendee."""
    (attendee,) = board.read_board(room).attendees
    return attendee


def show(*words) -> tuple[int, str]:
    """`ddp-workbook room --once`: exit code, and all words on one line."""
    return run("room", "--once", *words)


# An attendee


def test_nothing_is_shared_without_joining(room):
    note_page("samplers")
    assert note_verdict("my_indices", "solved", "") == ""
    assert list(room.iterdir()) == [] and not Path("work").exists()


def test_what_is_shared(room):
    """The chosen name, the page, states, counts and advice; no answer, no name of user or host."""
    assert "blue otter" in join_room("  blue\notter ")
    note_page("00_start_here")
    note_verdict("mean_over_ranks", "not yet", ADVICE)
    note_verdict("mean_over_ranks", "solved", "")
    note_verdict("mean_over_ranks", "not yet", ADVICE)
    attendee = only_attendee(room)
    assert (attendee.name, attendee.page) == ("blue otter", "00_start_here")
    work = attendee.exercises["mean_over_ranks"]
    assert (work.state, work.attempts) == ("solved", 3), "what is solved stays solved"
    content = json.loads(one_file(room).read_text())
    assert content.keys() == {"name", "page", "time", "exercises", "since", "sent", "guesses"}
    work = content["exercises"]["mean_over_ranks"]
    assert work.keys() == {"state", "attempts", "advice", "time", "began"}


def test_an_exercise_cell_tells_the_room_and_keeps_its_code(room):
    join_room("otter")
    code = Exercise("mean_over_ranks").solution
    wrong = code.replace("total.item() / dist.get_world_size()", "total.item()")
    ExerciseMagics().exercise("mean_over_ranks", wrong)
    text = one_file(room).read_text()
    assert only_attendee(room).exercises["mean_over_ranks"].advice == ADVICE
    assert "all_reduce" not in text and "total" not in text
    ExerciseMagics().exercise("mean_over_ranks", code)
    assert only_attendee(room).solved == ["mean_over_ranks"]


def test_leaving_removes_the_file(room):
    join_room("otter")
    assert "have left" in leave_room()
    assert list(room.iterdir()) == []
    note_verdict("my_indices", "solved", "")
    assert list(room.iterdir()) == [] and leave_room() == "You are in no room."


def test_the_instructor_may_read_what_a_careful_account_has_written(room):
    """On many clusters, files that a user makes are for that user only."""
    before = os.umask(0o077)
    try:
        join_room("otter")
        note_verdict("my_indices", "solved", "")
    finally:
        os.umask(before)
    assert one_file(room).stat().st_mode & 0o777 == 0o644


def test_a_new_name_replaces_the_old_one(room):
    join_room("otter")
    join_room("heron")
    assert only_attendee(room).name == "heron"


@pytest.mark.parametrize("name", ["", "  \n ", "x" * 41])
def test_a_bad_name_is_refused(room, name):
    with pytest.raises(BadRoom, match="Choose another name: a name has 1 to 40 letters"):
        join_room(name)


def test_a_room_that_is_not_named_or_not_there(room, monkeypatch):
    with pytest.raises(BadRoom, match="There is no folder"):
        join_room("otter", room / "nowhere")
    (room / "file").touch()
    with pytest.raises(BadRoom, match="There is no folder"):
        join_room("otter", room / "file")
    monkeypatch.delenv(report.VARIABLE)
    with pytest.raises(BadRoom, match=r"join_room\('otter', 'folder'\)"):
        join_room("otter")
    assert not report.OWN.exists() and leave_room() == "You are in no room."


def test_a_room_that_vanishes_loses_nothing(room):
    """The verdict says it; the news comes with the next one, when the room is there again."""
    join_room("otter")
    elsewhere = room.rename(room.with_name("unmounted"))
    message = note_verdict("where_is", "not yet", "Count the nodes.")
    assert "is not there" in message and "Nothing is lost" in message
    assert not room.exists(), "the folder of a disk that is not mounted is not made"
    elsewhere.rename(room)
    assert note_verdict("my_indices", "solved", "") == ""
    assert only_attendee(room).exercises.keys() == {"where_is", "my_indices"}


def test_two_pages_of_one_attendee_keep_each_other_s_news(room):
    """Two kernels work in one folder, and write at the same time."""
    join_room("otter")
    code = "import sys; from ddp_workbook.page.room_client.report import note_verdict\n"
    code += "for _ in range(50): assert note_verdict(sys.argv[1], 'not yet', 'x') == ''\n"
    names = ["where_is", "my_indices"]
    writers = [subprocess.Popen([sys.executable, "-c", code, name]) for name in names]
    assert [writer.wait(600) for writer in writers] == [0, 0]
    report.send()
    assert {name: work.attempts for name, work in only_attendee(room).exercises.items()} == {
        "where_is": 50,
        "my_indices": 50,
    }


# The instructor


def news(name: str, age: float = 0.0, **exercises: tuple[str, int, str]) -> dict:
    """What an attendee's file holds; `age` in seconds."""
    now = time.time() - age
    works = {
        exercise: {"state": state, "attempts": attempts, "advice": advice, "time": now}
        for exercise, (state, attempts, advice) in exercises.items()
    }
    return {"name": name, "page": "04_samplers", "time": now, "exercises": works}


def put(room: Path, *files: dict) -> None:
    """Write these files as attendees do."""
    for path in room.glob("*.json"):
        path.unlink()
    for number, content in enumerate(files):
        (room / f"{number:016x}.json").write_text(json.dumps(content))


def test_the_exercise_at_which_most_are_stuck_comes_first(room):
    stuck, other = ("not yet", 3, ADVICE), ("not yet", 4, "Another thought.")
    put(
        room,
        news("ant", mean_over_ranks=stuck, where_is=("not yet", 2, "x")),
        news("bee", mean_over_ranks=other),
        news("cat", mean_over_ranks=stuck, my_indices=other),
        news("dog", mean_over_ranks=("solved", 9, "")),
    )
    rows = board.read_board(room).stuck()
    assert [(row.exercise, row.people, row.times) for row in rows] == [
        ("mean_over_ranks", ["ant", "bee", "cat"], 2),
        ("my_indices", ["cat"], 1),
    ]
    assert rows[0].advice == ADVICE
    code, output = show()
    assert code == 0
    assert (
        f"Stuck at mean_over_ranks: 3 people (ant, bee, cat). 2 of 3 got this advice: {ADVICE}"
        in output
    )
    assert "4 in the room" in output
    assert "1 of 4 have solved mean_over_ranks" in output


def test_one_of_several_common_advices_is_not_the_commonest(room):
    put(
        room,
        news("ant", where_is=("not yet", 3, "Count the nodes.")),
        news("bee", where_is=("not yet", 3, "Nodes have different sizes.")),
    )
    assert "Stuck at where_is: 2 people (ant, bee). No advice is the commonest." in show()[1]


@pytest.mark.parametrize(
    ("tried", "began", "stuck"),
    [(60, 60, False), (60, 11 * 60, True), (31 * 60, 50 * 60, False)],
    ids=["has just begun", "for long", "has gone on"],
)
def test_who_tries_for_long_is_stuck_after_one_attempt_too(room, tried, began, stuck):
    message = news("ant", where_is=("not yet", 1, "Count the nodes."))
    message["exercises"]["where_is"] |= {"time": time.time() - tried, "began": time.time() - began}
    put(room, message)
    assert bool(board.read_board(room).stuck()) is stuck


def test_the_bars_stand_in_the_order_in_which_the_room_began(room):
    late, early = news("ant", zebra=("solved", 1, "")), news("bee", 900.0, apple=("not yet", 2, ""))
    put(room, late | {"exercises": late["exercises"] | early["exercises"]}, early)
    assert board.read_board(room).solved() == [("apple", 0), ("zebra", 1)]


def test_a_row_says_where_somebody_is(room):
    put(room, news("ant", 700.0, where_is=("not yet", 2, "x"), my_indices=("solved", 1, "")))
    (row,) = views.rows(board.read_board(room))
    assert row == ("ant", "04_samplers", "1", "where_is", "2", "12 (away?)")
    (attendee,) = board.read_board(room).attendees
    assert views.row(attendee, 0.0)[-1] == "0", "a clock that is behind"


def test_a_clock_that_is_two_hours_off_does_not_matter(room):
    """The file's time stamp is the file server's, whatever the attendee's clock says."""
    for wrong in (-7200, 7200):
        message = news("ant", 60.0 + wrong, where_is=("not yet", 1, "x"))
        put(room, message | {"sent": time.time() - wrong})
        (row,) = views.rows(board.read_board(room))
        assert row[-1] == "1", wrong


def test_yesterday_s_people_do_not_count(room):
    put(room, news("ant", 20 * 3600, where_is=("not yet", 9, "x")), news("bee"))
    result = board.read_board(room)
    assert [attendee.name for attendee in result.attendees] == ["bee"]
    assert result.stuck() == [] and result.solved() == []
    assert "1 in the room; 1 person from an earlier day" in show()[1]


def test_no_name_of_an_exercise_is_cut_off(room):
    """In a terminal of the usual width; a name may be folded."""
    put(room, news("a name of some length", row_and_column_groups=("not yet", 2, "x")))
    console = Console(width=80)
    with console.capture() as shown:
        console.print(views.table(board.read_board(room)))
    words = "".join(line.split("│")[4].strip() for line in shown.get().splitlines() if "│" in line)
    assert words == "row_and_column_groups"


def test_attendees_with_one_name_are_told_apart_by_when_they_joined(room):
    """Whatever the names of their files: nobody's number changes because another one comes."""
    put(room, *(news("ant") | {"since": 100.0 - n, "page": f"p{n}"} for n in range(50)))
    result = board.read_board(room).attendees
    assert {attendee.name: attendee.page for attendee in result} == {
        f"ant ({50 - n})" if n < 49 else "ant": f"p{n}" for n in range(50)
    }


BAD_FILES = {
    "torn": b'{"name": "ant", "exer',
    "empty": b"",
    "not text": b"\xff\xfe\x00",
    "a list": b"[]",
    "no exercises": b'{"name": "ant", "page": "", "time": 1}',
    "odd values": b'{"name": "ant", "page": "", "time": "x", "exercises": {}}',
    "odd exercises": b'{"name": "ant", "page": "", "time": 1, "exercises": {"a": 3}}',
    "a path": b'{"name": "ant", "page": "../x", "time": 1, "exercises": {}}',
    "no time": b'{"name": "ant", "page": "", "time": NaN, "exercises": {}}',
    "huge": b" " * (attendee_news.MAX_NEWS_BYTES + 1),
}


@pytest.mark.parametrize("data", BAD_FILES.values(), ids=BAD_FILES)
def test_a_damaged_file_is_shown_as_such_and_skipped(room, data):
    put(room, news("ant"))
    (room / "ffff.json").write_bytes(data)
    code, output = show()
    assert code == 0 and "This file is damaged or cannot be read: ffff.json." in output
    assert "ant" in output and "1 in the room" in output


def test_half_written_files_are_not_looked_at(room):
    (room / ".0.json.17.abcd").write_text("{")
    assert board.read_board(room, 1.0) == board.Board(1.0)


def test_a_room_that_is_gone_is_said_with_the_last_view(room, tmp_path):
    put(room, news("ant"))
    view = views.View(room)
    before = view.look(board.Board())
    room.rename(tmp_path / "unmounted")
    gone = view.look(before)
    assert [attendee.name for attendee in gone.attendees] == ["ant"]
    assert views.sentences(gone, names=True) == [
        f"The room cannot be read now: {room} is not there."
    ]
    assert show() == (1, show()[1]) and "cannot be read now" in show()[1]


def test_the_page_to_project_names_nobody_unless_names_are_wanted(room, tmp_path):
    """It loads itself again, and what attendees wrote cannot become HTML."""
    put(room, news("<b>ant</b>", mean_over_ranks=("not yet", 5, "<script>x</script>")))
    page = tmp_path / "page.html"
    assert show("--page", page, "--every", 7)[0] == 0
    text = page.read_text()
    assert "ant" not in text.replace("want", "") and "<script>" not in text
    assert 'content="7"' in text
    assert "0 of 1 have solved mean_over_ranks" in text
    assert re.search(r"<p>Stuck at mean_over_ranks: 1 person\. 1 of 1 got this advice", text)
    assert show("--page", page, "--names")[0] == 0
    text = page.read_text()
    assert "<b>" not in text and "&lt;b&gt;ant&lt;/b&gt;" in text


def test_the_page_to_project_has_no_damaged_files(room, tmp_path):
    (room / "ffff.json").touch()
    assert "ffff.json" in show("--page", tmp_path / "page.html")[1]
    assert "ffff.json" not in (tmp_path / "page.html").read_text()


def test_a_file_in_place_of_a_room(room):
    code, output = show("--folder", Path(__file__))
    assert code == 1 and "is not a folder" in output


def test_a_page_that_cannot_be_written_is_named(room, tmp_path):
    (tmp_path / "file").touch()
    code, output = show("--page", tmp_path / "file" / "page.html")
    assert code == 2 and "cannot be written" in output


def test_a_page_that_cannot_be_written_any_more_does_not_end_the_board(room, tmp_path):
    put(room, news("ant"))
    folder = tmp_path / "site"
    view = views.View(room, folder / "page.html")
    before = view.look(board.Board())
    (folder / "page.html").unlink()
    folder.rmdir()
    folder.touch()
    after = view.look(before)
    assert [attendee.name for attendee in after.attendees] == ["ant"]
    assert "cannot be written" in views.sentences(after, names=True)[0]


def test_a_folder_that_cannot_be_listed_is_said_with_the_last_view(room, monkeypatch):
    """As where other programs hold all the descriptors that this account may have."""
    put(room, news("ant"))
    view = views.View(room)
    before = view.look(board.Board())

    def refuse(*_: object):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "glob", refuse)
    after = view.look(before)
    assert [attendee.name for attendee in after.attendees] == ["ant"]
    assert "Too many open files" in views.sentences(after, names=True)[0]


@pytest.mark.parametrize("control", ["\x1bc", "\x1b]0;title\x07", "\x9b2J", "\r\n", "\u202e"])
def test_no_control_character_reaches_the_terminal(room, control):
    """Neither of an advice nor of a file's name; the server and the folder are read alike."""
    put(room, news("ant", mean_over_ranks=("not yet", 5, f"Count{control}the ranks.")))
    with contextlib.suppress(OSError):  # not every file system takes such a name
        (room / f"f{control}.json").touch()
    lines = views.sentences(board.read_board(room), names=True)
    assert len(lines) == 2 and all(line.isprintable() for line in lines)
    assert "Count" in lines[0] and "the ranks." in lines[0]


def test_an_attendee_can_be_taken_out_of_the_room(room):
    put(room, *map(news, ("ant", "x", "x")))
    assert run("room", "--folder", room, "--remove", "x") == (
        0,
        "Taken out of the room: 2 people called x.",
    )
    assert [attendee.name for attendee in board.read_board(room).attendees] == ["ant"]
    assert run("room", "--folder", room, "--remove", "x")[0] == 1
    assert run("room", "--serve", "--remove", "x")[0] == 2


def test_which_room_must_be_said(monkeypatch):
    monkeypatch.delenv(report.VARIABLE, raising=False)
    assert show()[0] == 2


def test_watching_prints_what_changes_until_an_interrupt(room, monkeypatch, capsys):
    """Nothing is printed over: a table that is longer than the terminal can be scrolled."""
    put(room, *(news(f"person {number:02}") for number in range(60)))
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            put(room, news("latecomer"))
        if len(looks) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(views, "time", SimpleNamespace(sleep=sleep, strftime=time.strftime))
    assert views.View(room, every=0.5).watch() == 0
    assert looks == [0.5] * 5
    printed = capsys.readouterr().out
    assert printed.count("person 00") == printed.count("person 59") == 1
    assert printed.count("latecomer") == 1


# The heartbeat


def test_cells_that_run_show_who_is_at_work_and_on_which_page(room, monkeypatch):
    """From a page's first cell; not more often than it is worth."""
    pages = []
    beat = report.Heartbeat(lambda: pages.append(1) or Path("04_samplers.ipynb"))
    beat()
    assert not list(room.iterdir()) and not pages, "nobody has joined"
    join_room("otter")
    for _ in range(3):
        beat()
    assert len(pages) == 1
    assert report.DELIVERY.send_soon(60) == ""
    assert only_attendee(room).page == "04_samplers"
    monkeypatch.setattr(report, "HEARTBEAT_S", 0.0)
    before = only_attendee(room).time
    beat()
    assert report.DELIVERY.send_soon(60) == ""
    assert only_attendee(room).time > before


# Guesses


def guess_news(name: str, question: str, first: str, now: str, age: float = 0.0) -> dict:
    """News with one guess."""
    guess = {"first": first, "now": now, "chosen": 1, "time": time.time() - age}
    return news(name) | {"guesses": {question: guess}}


def test_what_fifty_people_guess_is_counted_and_nobody_is_named(room, tmp_path):
    """First and after they have talked; the choices that nobody made have their bars, too."""
    firsts, nows = "a" * 30 + "c" * 20, "a" * 10 + "c" * 40
    people = enumerate(zip(firsts, nows, strict=True))
    put(room, *(guess_news(f"ant {n}", CHOICE, *both) for n, both in people))
    (spread,) = board.read_board(room).spreads()
    assert spread.counts == [("a", 30, 10), ("b", 0, 0), ("c", 20, 40)] and spread.people == 50
    page = tmp_path / "page.html"
    output = show("--page", page)[1]
    assert f"50 people guessed: {find(CHOICE).ask}" in output
    assert "40 (at first 20) c: any order, and it can change from run to run" in output
    text = page.read_text()
    assert '<meter min="0" max="50" value="40"' in text and find(CHOICE).ask in text
    assert "ant" not in text.replace("want", "") and "The answer" not in text


def test_numbers_are_counted_and_rare_ones_together(room):
    """Before anybody has changed their mind, there is one count."""
    files = [guess_news(f"ant {n}", NUMBER, str(n // 2), str(n // 2)) for n in range(20)]
    put(
        room, *files, guess_news("bee", NUMBER, "21.0", "21.0"), guess_news("cat", NUMBER, "a", "a")
    )
    (spread,) = board.read_board(room).spreads()
    assert spread.people == 21 and spread.counts[-1] == (21, 1, 1), "a letter is no number"
    bars = views.guess_bars(spread)
    assert bars[0] == (2, 21, "2  0") and bars[-1] == (9, 21, "9  other numbers") and len(bars) == 7


def test_the_latest_question_is_on_the_projector(room, tmp_path):
    put(
        room,
        guess_news("ant", CHOICE, "a", "a", 500.0),
        guess_news("bee", NUMBER, "15", "15", 60.0),
    )
    names = [spread.question.name for spread in board.read_board(room).spreads()]
    assert names == [CHOICE, NUMBER]
    show("--page", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert find(NUMBER).ask in text and find(CHOICE).ask not in text


def test_a_guess_is_shared_from_joining_on(room, monkeypatch):
    """By the reader's own click; the first one stays, and leaving takes it out."""
    monkeypatch.setattr(guesses, "CORRECTION_S", 0.0)
    predictions.predict(NUMBER, 5)
    join_room("otter")
    assert only_attendee(room).guesses == {}
    asked = predictions.predict(CHOICE)
    for letter in "ab":
        asked.buttons[letter].click()
    assert report.DELIVERY.send_soon(60) == ""
    guess = only_attendee(room).guesses[CHOICE]
    assert (guess.first, guess.now, guess.chosen) == ("a", "b", 2)
    leave_room()
    assert list(room.iterdir()) == []


@pytest.mark.parametrize(
    "odd",
    [{"now": "import os"}, {"now": 3}, {"chosen": 0}, {"first": "1" * 99}, {"time": "x"}],
    ids=str,
)
def test_what_is_no_guess_is_damaged(room, odd):
    message = guess_news("ant", CHOICE, "a", "b")
    message["guesses"][CHOICE] |= odd
    put(room, message)
    assert board.read_board(room).corrupt == [f"{0:016x}.json"]


# Many at once

WRITERS, UPDATES = 8, 200  # tests/browser/test_room.py has twenty, over the network


@pytest.mark.push("a room of many")
def test_many_writers_lose_nothing_and_tear_nothing(room, tmp_path):
    """Each from a folder of its own, as on a shared disk, while the instructor looks."""
    code = f"""
import sys
from ddp_workbook.page.room_client.report import join_room, note_guess, note_verdict
join_room(sys.argv[1])
print("in", flush=True)
sys.stdin.readline()
for number in range({UPDATES}):
    note_guess("{CHOICE}", "a", "abc"[number % 3])
    told = note_verdict(f"exercise_{{number % 7}}", "not yet", "x" * 200)
    assert told == "", told
"""
    writers = []
    for number in range(WRITERS):
        own = tmp_path / f"own-{number}"
        own.mkdir()
        line = [sys.executable, "-c", code, f"attendee {number}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        writers.append(subprocess.Popen(line, cwd=own, **pipes))
    try:
        for writer in writers:
            assert writer.stdout.readline() == "in\n"
        for writer in writers:
            writer.stdin.close()
        looks = 0
        while any(writer.poll() is None for writer in writers):
            result = board.read_board(room)
            assert result.corrupt == [] and len(result.attendees) == WRITERS
            looks += 1
        assert looks > 1
        assert [writer.returncode for writer in writers] == [0] * WRITERS
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            writer.stdout.close()
    result = board.read_board(room)
    counts = [
        sum(work.attempts for work in attendee.exercises.values()) for attendee in result.attendees
    ]
    assert counts == [UPDATES] * WRITERS
    (spread,) = result.spreads()
    assert spread.counts == [("a", WRITERS, 0), ("b", 0, WRITERS), ("c", 0, 0)]
    assert {attendee.guesses[CHOICE].chosen for attendee in result.attendees} == {UPDATES}
    assert len(list(room.iterdir())) == WRITERS, "nothing half-written is left"
