"""solve, grade, reset and time, as typed by an instructor."""

import json
import re
import subprocess
from datetime import date
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from ddp_workbook import cli
from ddp_workbook.judging import attempts
from ddp_workbook.judging.catalogue import Exercise, names
from ddp_workbook.judging.source import same_code
from ddp_workbook.page import pages
from ddp_workbook.workshop import minutes, requirements, timetable
from ddp_workbook.workshop.certificates import safe
from ddp_workbook.workshop.execution import copy_layout
from ddp_workbook.workshop.grading import attendee_names
from ddp_workbook.workshop.sandbox import sandbox
from tests.commands import run
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)

RIGHT = Exercise("mean_over_ranks").solution
WRONG = RIGHT.replace("total.item() / dist.get_world_size()", "total.item()")
PAGE = "00_start_here.ipynb"


@pytest.fixture
def copy(tmp_path, monkeypatch) -> Path:
    """A copy of the notebooks, on which the commands work, as the current folder."""
    monkeypatch.setattr(pages, "FOLDER", copy_layout(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cell_of(path: Path, name: str) -> str:
    """The code in an exercise's cell, without its first line."""
    return next(
        pages.source(cell).partition("\n")[2]
        for one, cell in pages.exercises(pages.load(path))
        if one == name
    )


def put(path: Path, name: str, code: str) -> None:
    """Write this code into an exercise's cell, as an attendee would."""
    page = pages.load(path)
    for one, cell in pages.exercises(page):
        if one == name:
            pages.fill(cell, name, code)
    pages.save(path, page)


def test_every_command_has_help():
    """With its purpose, and nothing missing in an option's words."""
    code, output = run("--help")
    assert code == 0
    headings = ("For readers", "For those who teach", "For a training program of your own")
    assert all(words in output for words in (*headings, "--version", "--install-completion"))
    for command in ("check", "solve", "grade", "reset", "update", "time", "wheels", "plan"):
        assert f" {command} " in output
        assert run(command, "--help")[0] == 0


# Pages by name


@pytest.mark.parametrize("name", ["04", "samplers", "04_samplers", "notebooks/04_samplers.ipynb"])
def test_a_page_has_several_names(name):
    assert [path.stem for path in pages.find_pages([name])] == ["04_samplers"]


def test_every_exercise_has_its_page():
    assert {pages.page_of(name).stem for name in names()} == {
        path.stem for path in pages.all_pages() if pages.exercises(pages.load(path))
    }


def test_a_command_says_what_the_course_needs(monkeypatch, tmp_path):
    """A checkout, and packages that `pip install` of the tools does not bring."""
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == "tornado" else 1)
    code, output = run("time", "--no-run")
    assert code == 2 and f"this Python lacks tornado: `make setup` in {pages.CHECKOUT}" in output
    monkeypatch.setattr(pages, "FOLDER", tmp_path / "notebooks")
    code, output = run("time", "--no-run")
    assert code == 2 and f"there is no folder {tmp_path}/notebooks. Run `git clone`" in output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a notebook, or only a part of one"),
        ("[]", "is not a notebook"),
        ('{"nbformat": 5, "cells": []}', "has notebook format 5, and the workbook reads format 4"),
    ],
)
def test_a_notebook_that_cannot_be_read_is_named(copy, text, message):
    (copy / "notebooks" / PAGE).write_text(text)
    code, output = run("solve", "00", "--to", copy / "solved")
    assert code == 2 and message in output
    assert not (copy / "solved").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("time --no-run further_the_bach", "Did you mean further_the_batch"),
        ("time --no-run 99", "There are: 00_start_here"),
        ("solve 99 --to solved", "There are: 00_start_here"),
        ("reset nosuch", "There are: mean_over_ranks"),
        ("solve 02_further_launchers --to solved", "has no exercises"),
        ("solve 00 --to file", "file is a file: copies cannot be written there"),
        ("reset mean_over_rank", "Did you mean mean_over_ranks?"),
        (
            "reset mean_over_ranks --notebook notebooks/further/06_further_mistakes.ipynb",
            "no cell that begins with %%exercise mean_over_ranks",
        ),
        ("doctor x.py --epochs 2", "Words for the script come after --"),
        ("profile x.py --epochs 2", "Words for the script come after --"),
        ("grade --work nowhere", "There are no attempts in"),
        ("grade mean_of_ranks", "Did you mean mean_over_ranks?"),
    ],
)
def test_what_is_not_there_is_named(copy, line, message):
    (copy / "file").write_text("a file")
    attempts.save("mean_over_ranks", RIGHT)
    code, output = run(*line.split())
    assert code == 2 and message in output


# solve


def test_solved_copies_differ_in_the_exercises_only(copy):
    code, output = run("solve", "--to", "solved")
    assert code == 0
    written = sorted((copy / "solved").rglob("*.ipynb"))
    assert len(written) > 20
    for path in written:
        before, after = (
            pages.load(folder / pages.place_of(path.stem))
            for folder in (copy / "notebooks", copy / "solved")
        )
        assert f"{path.name}: " in output
        for old, new in zip(before["cells"], after["cells"], strict=True):
            if old != new:
                name = pages.EXERCISE.match(pages.source(new))[1]
                assert (
                    pages.source(new).partition("\n")[2].strip() == Exercise(name).solution.strip()
                )
        nbformat.validate(nbformat.read(path, as_version=4))


def test_a_copy_that_somebody_has_changed_is_not_overwritten(copy):
    assert run("solve", "00", "01", "--to", "solved")[0] == 0
    assert run("solve", "00", "01", "--to", "solved")[0] == 0, "the same copies again"
    changed = copy / "solved" / PAGE
    put(changed, "mean_over_ranks", "my_own = 1")
    (copy / "solved" / "01_data_parallel.ipynb").unlink()
    code, output = run("solve", "00", "01", "--to", "solved")
    assert code == 2 and "may be somebody's work" in output
    assert cell_of(changed, "mean_over_ranks") == "my_own = 1"
    assert not (copy / "solved" / "01_data_parallel.ipynb").exists(), "nothing was written"


# reset


def test_the_stub_comes_back_and_the_attempt_is_kept(copy):
    page = copy / "notebooks" / PAGE
    shipped = page.read_text()
    put(page, "mean_over_ranks", WRONG)
    code, output = run("reset", "mean_over_ranks")
    assert code == 0 and "holds its stub." in output
    assert page.read_text() == shipped, "all else is as it was"
    (attempt_file,) = (copy / "notebooks" / "work" / "exercises").glob("mean_over_ranks.*.py")
    assert same_code(attempt_file.read_text().partition("\n")[2], WRONG)
    assert str(attempt_file) in output
    assert run("reset", "mean_over_ranks") == (0, "The cell of mean_over_ranks holds its stub.")


CELL = "ex-mean-over-ranks"


@pytest.mark.parametrize("where", ["its own page", "a copy under another name"])
@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"source": WRONG}, True),  # the first line is gone
        ({"source": f"# mine\n%%exercise mean_over_ranks\n{WRONG}"}, True),
        ({"source": WRONG, "cell_type": "markdown"}, True),
        ({"source": ""}, False),
        (None, False),  # deleted
    ],
    ids=["no first line", "a comment above it", "Markdown", "emptied", "deleted"],
)
def test_a_ruined_cell_comes_back_in_its_place(copy, change, kept, where):
    page = copy / "notebooks" / PAGE
    shipped = pages.load(page)
    ruined = pages.load(page)
    place = [cell["id"] for cell in ruined["cells"]].index(CELL)
    if change is None:
        del ruined["cells"][place]
    else:
        ruined["cells"][place] |= change
    options = []
    if where != "its own page":
        page = copy / "mine.ipynb"
        options = ["--notebook", page]
    pages.save(page, ruined)
    code, output = run("reset", "mean_over_ranks", *options)
    assert code == 0, output
    assert pages.load(page)["cells"] == shipped["cells"]
    files = list((page.parent / "work" / "exercises").glob("mean_over_ranks.*.py"))
    assert bool(files) == kept and all(WRONG.strip() in file.read_text() for file in files)


def test_a_page_without_a_place_for_the_cell_is_refused(copy):
    page = copy / "notebooks" / PAGE
    ruined = pages.load(page)
    ruined["cells"] = [cell for cell in ruined["cells"] if not cell["id"].startswith(CELL)]
    pages.save(page, ruined)
    for options in ([], ["--notebook", page]):
        code, output = run("reset", "mean_over_ranks", *options)
        assert code == 2 and "--page" in output


def test_a_lost_page_comes_back_and_what_it_was_is_kept(copy):
    page = copy / "notebooks" / PAGE
    code, output = run("reset", "--page", "00")
    assert code == 2 and "git cannot show" in output and "Nothing was changed" in output
    shipped = page.read_text()
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "as shipped"]):
        author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *author, *words], cwd=page.parent, check=True)
    for number, text in enumerate(("my page", "no notebook at all"), start=1):
        page.write_text(text)
        code, output = run("reset", "--page", "00")
        page_copy = page.parent / "work" / "pages" / f"00_start_here.{number}.ipynb"
        assert code == 0 and str(page_copy) in output
        assert (page.read_text(), page_copy.read_text()) == (shipped, text)
    page.unlink()
    code, output = run("reset", "--page", "start_here")
    assert code == 0 and "It was gone." in output and page.read_text() == shipped


def test_reset_takes_an_exercise_or_a_page(copy):
    assert run("reset")[0] == run("reset", "mean_over_ranks", "--page", "00")[0] == 2


def test_a_newer_notebook_keeps_what_we_do_not_know(copy):
    """A later minor format, with fields of its own, at every level."""
    page = copy / "notebooks" / PAGE
    put(page, "mean_over_ranks", WRONG)
    notebook = json.loads(page.read_text())
    notebook |= {"nbformat_minor": 99, "news": {"ä": 1}}
    notebook["cells"][0]["news"] = [2]
    page.write_text(json.dumps(notebook))
    assert run("reset", "mean_over_ranks")[0] == 0
    after = json.loads(page.read_text())
    assert (after["nbformat_minor"], after["news"]) == (99, {"ä": 1})
    assert after["cells"][0]["news"] == [2]


def test_nothing_is_reset_if_the_attempt_cannot_be_kept(copy):
    page = copy / "notebooks" / PAGE
    put(page, "mean_over_ranks", WRONG)
    (copy / "notebooks" / "work").write_text("a file in the way")
    code, output = run("reset", "mean_over_ranks")
    assert code == 2 and "could not be saved" in output
    assert same_code(cell_of(page, "mean_over_ranks"), WRONG)


# grade


def attempt(name: str, *codes: str) -> None:
    """Save these attempts one after the other, as the exercise's cell does."""
    for code in codes:
        attempts.save(name, code)


@pytest.mark.memory
@pytest.mark.long
def test_the_latest_attempts_are_judged_and_none_is_touched(copy):
    attempt("mean_over_ranks", WRONG, RIGHT)
    attempt("where_is", "def where_is(:\n")
    saved = {path: path.read_bytes() for path in (copy / "work").rglob("*.*")}
    code, output = run("grade", "--words")
    assert code == 1
    assert "mean_over_ranks │ 2 │ solved │ solved" in output
    assert "where_is │ 1 │ not yet │ not yet" in output
    assert "where_is is not valid Python" in output and "1 of 2 solved." in output
    assert {path: path.read_bytes() for path in (copy / "work").rglob("*.*")} == saved


@pytest.mark.push("grades of many")
def test_a_named_exercise_without_an_attempt_is_not_solved(copy):
    attempt("mean_over_ranks", RIGHT)
    code, output = run("grade", "mean_over_ranks", "where_is")
    assert code == 1 and "where_is │ 0 │ not attempted" in output
    assert "1 of 2 solved. --words prints the verdicts." in output
    attempt("where_is", Exercise("where_is").stub)
    assert "where_is │ 1 │ not attempted" in run("grade", "where_is")[1]


@pytest.mark.push("grades of many")
def test_what_was_solved_counts_whatever_was_tried_after_it(copy):
    """Page 00 asks its readers to get a solved exercise wrong on purpose."""
    attempt("mean_over_ranks", RIGHT)
    attempts.note_solved(
        attempts.Attempt("mean_over_ranks", attempts.OWN_ATTEMPTS["mean_over_ranks"]), ""
    )
    attempt("mean_over_ranks", WRONG)
    code, output = run("grade")
    assert code == 0 and "mean_over_ranks │ 2 │ solved │ not yet" in output
    for note in Path("work/exercises").glob("*.solved"):  # a note that says more than is true
        note.write_text("mean_over_ranks.2.py\n")
    assert "mean_over_ranks │ 2 │ not yet │ not yet" in run("grade")[1]


@pytest.mark.push("grades of many")
def test_several_folders_are_one_table(copy):
    for who, code in {"ann": RIGHT, "bob": WRONG}.items():
        folder = copy / who / "work" / "exercises"
        attempts.save_numbered(folder, "mean_over_ranks", code)
        (folder / "mean_over_ranks.py").write_text(code)
    words = ["--work", copy / "ann" / "work", "--work", copy / "bob" / "work", "--without-sandbox"]
    code, output = run("grade", *words)
    assert (
        code == 1 and "ann │ mean_over_ranks │ 1 │ solved" in output and "1 of 2 solved" in output
    )
    assert (
        f",mean_over_ranks,1,solved,solved,{sandbox().name}"
        in run("grade", *words, "--format", "csv")[1]
    )
    result = json.loads(run("grade", *words, "--format", "json")[1])
    assert [row["verdict"] for row in result] == ["solved", "not yet"]
    assert {row["sandbox"] for row in result} == {sandbox().name}
    assert run("grade", "--format", "xml")[0] == 2


@pytest.mark.parametrize(
    ("folders", "who"),
    [
        (["stud/carl"], ["carl"]),
        (["ann/work/exercises", "bob/work/exercises"], ["ann", "bob"]),
        (["g1/anna/work/exercises", "g2/anna/work/exercises"], ["g1/anna", "g2/anna"]),
        (
            ["g1/anna/work/exercises", "g2/anna/work/exercises", "g2/bo"],
            ["g1/anna", "g2/anna", "bo"],
        ),
        (["ann/notebooks/work", "ann/work"], ["/s/ann/notebooks/work", "/s/ann/work"]),
        (["a/ann", "b/a/ann"], ["s/a/ann", "b/a/ann"]),
        (["/work/exercises"], ["/work/exercises"]),
    ],
)
def test_everybody_has_one_name(folders, who):
    """In the table, as csv and json, and on a certificate."""
    assert list(attendee_names([Path("/s", folder) for folder in folders]).values()) == who


@pytest.mark.push("grades of many")
def test_certificates_name_what_was_solved(copy):
    """One for each attendee; names are text, not HTML and not paths; no file is overwritten."""
    people = {"ann": RIGHT, "<b>Bo & Co": RIGHT, "cleo": WRONG}
    words = []
    for who, code in people.items():
        folder = copy / "collected" / who / "work" / "exercises"
        attempts.save_numbered(folder, "mean_over_ranks", code)
        (folder / "mean_over_ranks.py").write_text(code)
        words += ["--work", folder.parent]
    certificates = copy / "certificates"
    options = ["--certificates", certificates, "--workshop", "Spring <school>"]
    options.append("--without-sandbox")
    code, output = run("grade", *words, *options)
    assert code == 1 and "Nothing solved, so no certificate: cleo." in output
    assert sorted(path.name for path in certificates.iterdir()) == [
        "certificate_ann.html", "certificate_b_Bo_Co.html"
    ]  # fmt: skip
    text = (certificates / "certificate_b_Bo_Co.html").read_text()
    assert "<h1>&lt;b&gt;Bo &amp; Co</h1>" in text and "Spring &lt;school&gt;" in text
    assert "<li>00 Start here: mean_over_ranks</li>" in text and f"{date.today():%B %Y}" in text
    (certificates / "certificate_ann.html").write_text("signed")
    assert run("grade", *words, *options)[0] == 1
    assert (certificates / "certificate_ann.html").read_text() == "signed"
    assert "<h1>ann</h1>" in (certificates / "certificate_ann_2.html").read_text()
    assert len(list(certificates.iterdir())) == 3, "the same certificate is not written twice"
    (copy / "a file").write_text("")
    code, output = run("grade", *words[:2], *options, "--certificates", copy / "a file")
    assert code == 2 and "cannot be written" in output


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("../../etc/x", "etc_x"),
        ("Zoë Łuk", "Zoë_Łuk"),
        ("...", "attendee"),
        ("a" * 300, "a" * 50),
        ("line\nbreak", "line_break"),
    ],
)
def test_a_name_is_safe_in_a_file_name(name, file):
    assert safe(name) == file


def test_an_attempt_that_cannot_be_read_is_shown_as_such(copy):
    attempt("mean_over_ranks", RIGHT)
    Path("work/exercises/mean_over_ranks.py").write_bytes(b"\xff\xfe")
    code, output = run("grade", "--words")
    assert code == 1 and "undecided" in output and "cannot be read" in output
    line = ["grade", "--work", "work", "--without-sandbox"]
    csv = CliRunner().invoke(cli.app, [*line, "--format", "csv"]).output
    assert csv.count("\n") == 2 and csv.splitlines()[1].startswith(f"{copy.name},")
    Path("work/exercises/mean\x1bc.py").touch()
    output = CliRunner().invoke(cli.app, line).output
    assert "No exercise has the name of mean c.py" in output and "\x1b" not in output


@pytest.mark.push("grades of many")
def test_files_of_no_exercise_are_named(copy):
    """A saved file that somebody has renamed; earlier attempts are no such files."""
    attempt("mean_over_ranks", WRONG, RIGHT)
    code, output = run("grade", "--work", copy / "work", "--without-sandbox")
    assert code == 0 and "not judged" not in output
    Path("work/exercises/mean_over_rank.py").write_text(RIGHT)
    code, output = run("grade")
    assert code == 0 and "No exercise has the name of mean_over_rank.py: not judged." in output


# time


def test_minutes_without_running(copy):
    code, output = run("time", "--no-run")
    assert code == 0
    for path in pages.all_pages():
        both = minutes.stated_minutes(nbformat.read(path, as_version=4))
        assert f"{path.stem} │" in output and f"│ {both[0]} + {both[1]}" in output
    assert "without a run, code that cells show does not count" in output


def clock_of(output: str) -> list[str]:
    """The first column of a day, without its heading."""
    return re.findall(r"│ (\d+:\d\d) │", output)


def test_a_plan_of_the_guide_on_a_clock(copy):
    """Set-up, each page with its questions and slack, breaks, the end, and sums."""
    code, output = run("time", "--plan", "half-day", "--start", "13:30")
    assert code == 0
    limit, rows = timetable.plans(timetable.guide_text())["Half a day"]
    guide = [timetable.in_minutes(row.start) for row in rows]
    assert [timetable.in_minutes(one) - 13 * 60 - 30 for one in clock_of(output)] == guide
    assert guide[1] == 10 and guide[-1] <= limit
    assert "Break, 15 min" in output and "Close and Shut Down Notebook" in output
    whole, sums = re.search(r"total │ (\d:\d\d) hours, 6 pages │((?: \d+ │)+)", output).groups()
    assert timetable.in_minutes(whole) == guide[-1]
    teaching, exercises, questions, slack = map(int, re.findall(r"\d+", sums))
    pauses = sum(row.length for row in rows if not row.page)
    assert teaching + exercises + questions + slack + pauses == guide[-1]
    assert questions == 24 and slack >= 0.1 * (teaching + exercises + questions)


def test_pages_of_ones_own_on_a_clock(copy):
    """With breaks where they are named, and where none is named, before people sit too long."""
    code, output = run("time", "02", "break", "further_waiting", "lunch", "04", "--start", "9:05")
    assert code == 0 and output.count("Break, 15 min") == output.count("Lunch, 60 min") == 1
    first, *_ = clock_of(output)
    assert first == "9:05"
    assert "Break, 15 min" not in run("time", "00", "--start", "9:00")[1]
    words = "time", "00", "02", "04", "--start", "9:00"
    starts = clock_of(run(*words)[1])
    assert len(starts) == 3 + 1 + 3, "one break"
    words = "time", "04", "--start", "11:40", "--no-set-up"
    end = timetable.in_minutes(clock_of(run(*words)[1])[-1])
    code, output = run(*words, "--until", timetable.clock(end - 8))
    assert code == 1 and "│ 11:40 │ 04 Samplers" in output and "`my_indices` (" in output
    assert "Break, 5 min" in run("time", "02", "break:5", "04", "--start", "9:05")[1]
    assert run("time", "02", "break:x", "04", "--start", "9:05")[0] == 2


def test_a_day_that_does_not_fit_says_what_to_leave_out(copy):
    """As much as is needed, in the guide's words; whole pages if nothing else helps."""
    code, output = run("time", "--plan", "half-day", "--until", "12:45")
    assert code == 1
    late = int(re.search(r"ends (\d+) minutes late", output)[1])
    saved = [int(one) for one in re.findall(r"\((\d+) min\)", output)]
    assert sum(saved[:-1]) < late <= sum(saved)
    assert "`my_indices` (" not in output, "the plan leaves it out already"
    code, output = run("time", "00", "02", "--start", "9:00", "--until", "9:40")
    assert code == 1 and "02_distributed_data_parallel: the whole page (" in output
    words = "time", "00", "02", "break", "04", "--start", "13:30", "--until", "14:10"
    code, output = run(*words)
    assert code == 1 and "04_samplers: the whole page, and the pause before it (" in output
    assert "00_start_here: the whole page" not in output, "it fits without that pause"
    code, output = run("time", "00", "--start", "9:00", "--until", "9:05")
    assert code == 1 and "take a shorter plan" in output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cell-id=win-look)", "cell-id=gone)", "leaves out gone of 01_data_parallel: no such cell"),
        ("(05_collectives.ipynb)", "(05_gone.ipynb)", "05_gone.ipynb: there is no such page"),
    ],
)
def test_a_plan_that_somebody_has_changed_says_what_is_not_there(copy, old, new, message):
    guide = copy / "notebooks" / "README.md"
    guide.write_text(guide.read_text().replace(old, new))
    code, output = run("time", "--plan", "half-day")
    assert code == 2 and message in output
    guide.unlink()
    code, output = run("time", "--plan", "half-day")
    assert code == 2 and "README.md cannot be read" in output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("time 00 --start 25:00", "'25:00' is no time of the day"),
        ("time 00 --start 9:60", "'9:60' is no time of the day"),
        ("time 00 --start noon", "Write it as 9:00 or 13:30"),
        ("time 00 --start 9:00 --until 24:00", "'24:00' is no time of the day"),
        ("time 00 --start 10:00 --until 9:00", "before it starts"),
        ("time 00 --start 23:50", "would end after midnight"),
        ("time --start 9:00", "Name at least one page"),
        ("time break --start 9:00", "Name at least one page"),
        ("time 00 00 --start 9:00", "00_start_here is named twice"),
        ("time 00 sampler --start 9:00", "Did you mean samplers?"),
        ("time --plan half", "There are: ninety-minutes, half-day"),
        ("time 00 --plan half-day", "not both"),
    ],
)
def test_a_day_that_cannot_be(copy, line, message):
    code, output = run(*line.split())
    assert code == 2 and message in output


def test_a_page_is_run_in_a_copy_and_its_failures_are_named(copy):
    cells = [nbformat.v4.new_markdown_cell("*teaching 1 min · exercises 0 min*", id="first")]
    cells.append(nbformat.v4.new_code_cell("open('left behind', 'w').close(); 1 / 0", id="fails"))
    nbformat.write(nbformat.v4.new_notebook(cells=cells), copy / "notebooks" / "99_faulty.ipynb")
    code, output = run("time", "99")
    assert code == 1 and "99_faulty, cell fails: ZeroDivisionError: division by zero" in output
    assert not (copy / "notebooks" / "left behind").exists()


def test_a_read_only_folder(copy, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)  # root may write everywhere
    code, output = run("solve", "00", "--to", "solved")
    assert code == 2 and "cannot be written: Permission denied" in output


def test_a_full_disk(copy, monkeypatch):
    """The copy that is there stays whole."""
    put(copy / "notebooks" / PAGE, "mean_over_ranks", WRONG)
    before = (copy / "notebooks" / PAGE).read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    code, output = run("reset", "mean_over_ranks")
    monkeypatch.undo()
    assert code == 2 and "No space left on device" in output
    assert (copy / "notebooks" / PAGE).read_bytes() == before
