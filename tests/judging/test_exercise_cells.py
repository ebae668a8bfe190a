"""`%%exercise` cells: what is kept of an attempt, how verdicts look, what a real kernel says."""

import errno
import html
import html.parser
import re
import time
from pathlib import Path

import pytest

from ddp_workbook.judging import attempts, engine, judge, on_ranks, reader
from ddp_workbook.judging.catalogue import CHAPTERS, UnknownExercise, find, names
from ddp_workbook.judging.judge import examine
from ddp_workbook.judging.magics import ExerciseMagics
from ddp_workbook.judging.own_solution import own_solution
from ddp_workbook.judging.reader import hint, progress, solution
from ddp_workbook.judging.verdict import (
    COLOURS,
    NOT_ATTEMPTED,
    NOT_YET,
    SOLVED,
    UNDECIDED,
    Verdict,
)
from ddp_workbook.page import pages
from manyranks.errors import HangUndecided, WorkbookError
from manyranks.files import temporary_folders
from manyranks.launcher.launch import launch
from manyranks.rank_colours import contrast
from tests.attempts import RIGHT, cell
from tests.cells import Kernel, run
from tests.leaks import (  # noqa: F401 (fixtures)
    alive,
    no_rank_left,
    no_temporary_folder_yet,
    wait_until,
)

pytestmark = pytest.mark.memory  # a kernel and its ranks

NAME = "mean_over_ranks"
EXERCISE = find(NAME)
SYNTAX = "def mean_over_ranks(value)\n"  # is saved, and needs no rank
FOLDER = Path("work/exercises")


@pytest.fixture
def own_folder(tmp_path, monkeypatch, no_temporary_folder_yet):  # noqa: F811
    """Attempts are saved below the current folder, or below `instead`."""
    monkeypatch.chdir(tmp_path)


def read_saved(folder: Path = FOLDER) -> dict[str, str]:
    """The files of the attempts, without their first line."""
    texts = {path.name: path.read_bytes().decode() for path in sorted(folder.glob("*.py"))}
    return {name: text.removeprefix(f"# %%exercise {NAME}\n") for name, text in texts.items()}


# What is kept


def test_an_attempt_is_saved_before_anything_of_it_runs(own_folder, monkeypatch):
    snapshots = []

    def take_snapshot(check, attempt, sizes):
        snapshots.append((read_saved(), attempt.path.read_text()))

    monkeypatch.setattr(judge, "examine_calls", take_snapshot)
    examine(EXERCISE, "x = 1\n")
    [(files, of_this_check)] = snapshots
    assert files == {f"{NAME}.py": "x = 1\n", f"{NAME}.1.py": "x = 1\n"}
    assert of_this_check == f"# %%exercise {NAME}\nx = 1\n"


def test_a_verdict_is_shown_before_its_words_are_found(own_folder):
    """What came back and what is required are the same in both; a right answer shows one."""
    shown = []
    last = examine(EXERCISE, cell("return value"), shown.append)
    [first] = shown
    assert first.title == last.title and first.rows[:-1] == last.rows[:-1]
    assert first.rows[-1] == ("look at", engine.SEARCHING) != last.rows[-1]
    assert examine(EXERCISE, cell(RIGHT), shown.append).kind == SOLVED and shown == [first]


def test_a_search_for_words_ends_after_its_time(own_folder, monkeypatch):
    """What the comparison says is said then; nothing of it is remembered as impossible."""
    words = dict(examine(EXERCISE, cell("return value")).rows)["look at"]
    monkeypatch.setattr(on_ranks, "VARIANT_CALLS", {})
    monkeypatch.setattr(engine, "MAX_SEARCH_S", -1)
    assert dict(examine(EXERCISE, cell("return value")).rows)["look at"] not in ("", words)
    monkeypatch.setattr(engine, "MAX_SEARCH_S", 600)
    assert dict(examine(EXERCISE, cell("return value")).rows)["look at"] == words


def test_older_attempts_stay_and_equal_ones_share_a_file(own_folder):
    for number in (1, 2, 1, 1, 3, 2):
        examine(EXERCISE, f"{SYNTAX}# {number}\n")
    assert read_saved() == {
        f"{NAME}.1.py": f"{SYNTAX}# 1\n",
        f"{NAME}.2.py": f"{SYNTAX}# 2\n",
        f"{NAME}.3.py": f"{SYNTAX}# 3\n",
        f"{NAME}.py": f"{SYNTAX}# 2\n",
    }


def test_what_was_written_in_an_editor_stays_too(own_folder):
    examine(EXERCISE, SYNTAX)
    (FOLDER / f"{NAME}.py").write_bytes(b"of an editor \xff")
    examine(EXERCISE, f"{SYNTAX}# 2\n")
    assert (FOLDER / f"{NAME}.2.py").read_bytes() == b"of an editor \xff"
    assert len(list_saved()) == 4


def list_saved() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir())


def test_an_untouched_stub_neither_runs_nor_takes_the_place_of_an_attempt(own_folder):
    examine(EXERCISE, SYNTAX)
    before = read_saved()
    for untouched in (EXERCISE.stub, f"\n# {EXERCISE.stub}\n\n".replace("# import", "import")):
        verdict = examine(EXERCISE, untouched)
        assert verdict.kind == NOT_ATTEMPTED
        assert repr(verdict).splitlines()[0] == f"{NAME}: not attempted yet"
        assert f"your last attempt is in work/exercises/{NAME}.py" in repr(verdict)
    assert read_saved() == before


def test_two_kernels_at_once_lose_nothing_and_judge_what_is_theirs(own_folder, monkeypatch):
    """The other one saves at the worst moment: while this one writes."""
    write, their_attempts = attempts.write_atomically, []

    def after_the_other(path, text):
        monkeypatch.setattr(attempts, "write_atomically", write)
        their_attempts.append(attempts.save(NAME, "x = 'theirs'\n"))
        return write(path, text)

    attempts.save(NAME, "x = 'old'\n")
    monkeypatch.setattr(attempts, "write_atomically", after_the_other)
    ours = attempts.save(NAME, "x = 'ours'\n")
    assert set(read_saved().values()) == {"x = 'old'\n", "x = 'ours'\n", "x = 'theirs'\n"}
    assert "'ours'" in ours.path.read_text() and "'theirs'" in their_attempts[0].path.read_text()


def test_a_number_that_another_kernel_takes_meanwhile_is_left_to_it(own_folder, monkeypatch):
    attempts.save(NAME, "x = 1\n")
    (FOLDER / f"{NAME}.py").unlink()
    monkeypatch.setattr(attempts, "earlier", lambda folder, name: {})
    assert attempts.save(NAME, "x = 2\n").path.name == f"{NAME}.2.py"
    assert read_saved()[f"{NAME}.1.py"] == "x = 1\n"


def full_disk(monkeypatch, *, all_of_it: bool) -> None:
    """From now on no attempt can be written below the current folder, or none at all."""
    write = attempts.write_atomically

    def refuse(path):
        if all_of_it or "instead" not in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    opened = lambda path, *mode: refuse(path) or open(path, *mode)  # noqa: E731, SIM115
    monkeypatch.setattr(attempts, "open", opened, raising=False)
    monkeypatch.setattr(attempts, "write_atomically", lambda p, t: refuse(p) or write(p, t))


def test_a_full_or_read_only_folder_is_no_obstacle(own_folder, monkeypatch):
    full_disk(monkeypatch, all_of_it=False)
    verdict = examine(EXERCISE, cell(RIGHT))
    assert verdict.kind == SOLVED
    [instead] = temporary_folders()
    assert read_saved(instead / "exercises")[f"{NAME}.py"] == cell(RIGHT)
    assert attempts.latest_passed(NAME).read_text().endswith(cell(RIGHT))
    warning = attempts.warning(NAME)
    assert (
        "No space left" in warning
        and str(instead) in warning
        and "deleted when this kernel" in warning
    )
    failing = examine(EXERCISE, cell("return vlaue"))
    assert "your line 7: return vlaue" in repr(failing)


def test_a_temporary_folder_is_made_only_to_write_into_it(own_folder):
    """A kernel that is killed leaves it behind."""
    attempts.note_solved(attempts.save(NAME, SYNTAX), "it works")
    assert attempts.warning(NAME) == "", "it is kept"
    assert attempts.latest_passed(NAME) and not attempts.latest_passed("another")
    assert temporary_folders() == []


def test_a_folder_that_cannot_be_made_is_no_obstacle(own_folder, monkeypatch):
    monkeypatch.setattr(attempts, "FOLDER", Path("/proc/no-folder-can-be-made-here"))
    assert "instead" in str(attempts.save(NAME, SYNTAX).path)


def test_where_nothing_can_be_written_nothing_runs_and_it_says_why(own_folder, monkeypatch):
    full_disk(monkeypatch, all_of_it=True)
    monkeypatch.setattr(judge, "examine_calls", lambda *_: pytest.fail("it ran"))
    with pytest.raises(WorkbookError, match=r"could not be saved, so it was not run.*No space"):
        examine(EXERCISE, "x = 1\n")


def test_half_an_attempt_is_not_left(own_folder, monkeypatch):
    """The disk is full after the file was made."""

    class Full:
        def __init__(self, path, mode):
            Path(path).touch()

        def __enter__(self):
            raise OSError(errno.ENOSPC, "No space left on device")

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(attempts, "open", Full, raising=False)
    with pytest.raises(WorkbookError, match="No space left"):
        attempts.save(NAME, SYNTAX)
    assert list_saved() == []


def test_success_is_remembered_also_where_it_cannot_be_noted(own_folder, monkeypatch):
    attempt = attempts.save(NAME, RIGHT)
    attempts.note_solved(attempt, "it works")
    assert attempts.latest_passed(NAME) == attempt.path and not attempts.latest_passed("another")
    full_disk(monkeypatch, all_of_it=True)
    attempts.note_solved(attempt, "it works, and the disk is full")


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_lines_have_the_numbers_of_the_page_whatever_ends_them(own_folder, ends):
    verdict = examine(EXERCISE, cell("return vlaue").replace("\n", ends))
    assert "your line 7: return vlaue" in repr(verdict)
    assert read_saved()[f"{NAME}.py"] == cell("return vlaue")


# What can be called


def test_hints_come_one_after_the_other_then_all(monkeypatch):
    monkeypatch.setattr(reader, "HINT_COUNTS", type(reader.HINT_COUNTS)())
    hints = EXERCISE.hints
    for number, text in enumerate(hints, start=1):
        text_of_hint = hint(NAME)
        assert repr(text_of_hint) == f"Hint {number} of {len(hints)}\n{text}"
        assert (
            text_of_hint._repr_html_().count("<details") == 1
            and "open" not in text_of_hint._repr_html_()
        )
    for _ in range(2):
        last = repr(hint(NAME))
        assert all(text in last for text in hints) and f'solution("{NAME}")' in last


def test_the_solution_is_a_whole_cell_that_passes(own_folder):
    title, _, code = repr(solution(NAME)).partition("\n")
    assert title == f"One solution of {NAME}" and code == EXERCISE.solution
    assert examine(EXERCISE, code).kind == SOLVED
    assert "<details" in solution(NAME)._repr_html_()


def test_yours_is_the_solution_until_there_is_a_solved_attempt(own_folder):
    """Also where a later attempt fails: an experiment on the page needs one that works."""
    ours = own_solution(NAME)
    assert "not solved yet" in repr(ours)
    assert launch(ours, 4.0, ranks=2) == [4.0, 4.0]
    examine(EXERCISE, cell(RIGHT).replace("return ", "return 0.0 + "))
    examine(EXERCISE, cell("return vlaue"))
    own = own_solution(NAME)
    assert repr(own) == f"your {NAME}"
    assert "0.0 + " in own.path.read_text()
    assert launch(own, 4.0, ranks=2) == [4.0, 4.0]


def test_progress_is_a_line(own_folder):
    stem, names = next((stem, names) for stem, names in CHAPTERS.items() if len(names) > 2)
    assert repr(progress(stem)).splitlines()[0] == (
        f"Exercises of this chapter: 0 of {len(names)} solved; still open: {', '.join(names)}."
    )
    attempts.note_solved(attempts.save(names[1], "x = 1\n"), "yes")
    assert f"1 of {len(names)} solved ({names[1]}); still open: {names[0]}" in repr(progress(stem))
    for name in names:
        attempts.note_solved(attempts.save(name, "x = 1\n"), "yes")
    assert f"solved ({', '.join(names)}).\n" in repr(progress(stem))


def test_a_table_of_contents_knows_what_is_solved(own_folder):
    """On every page, also on one without exercises: all pages with links, minutes and counts."""
    attempts.note_solved(attempts.save("my_indices", "x = 1\n"), "yes")
    for page in progress()._repr_html_(), progress("start_here")._repr_html_():
        assert f"All pages: 1 of {len(names())} exercises solved" in page
        for path in pages.all_pages():
            assert f'<a href="{pages.place_of(path.stem)}">{html.escape(title(path))}</a>' in page
        row = page.partition('<a href="04_samplers.ipynb">')[2].partition("</tr>")[0]
        assert "1 of 2 solved" in row and re.search(r"\d+ \+ \d+ min", row)
    assert repr(progress()) == f"Exercises of all pages: 1 of {len(names())} solved."


def title(path: Path) -> str:
    """The first heading of a page."""
    return pages.title(pages.load(path))


def test_the_page_says_where_you_were_last(own_folder):
    """An exercise that is tried and open, on another page; nothing before, nothing once solved."""
    assert "You were last at" not in progress("start_here")._repr_html_()
    attempt = attempts.save("my_indices", "x = 1\n")
    page = progress("start_here")._repr_html_()
    assert 'You were last at <a href="04_samplers.ipynb">' in page and "my_indices" in page
    assert "You were last at" not in progress("samplers")._repr_html_()
    attempts.note_solved(attempt, "yes")
    assert "You were last at" not in progress("start_here")._repr_html_()


def test_progress_works_without_a_folder_of_pages(own_folder, monkeypatch):
    monkeypatch.setattr(pages, "FOLDER", Path("nowhere"))
    assert f"0 of {len(names())} exercises solved" in progress()._repr_html_()


def test_a_verdict_offers_hints_and_then_a_solution(own_folder):
    """Each hint inside the one before: each takes a click. After two attempts a solution, too."""
    magics, wrong = ExerciseMagics(), cell(RIGHT).replace("total.item() /", "total.item() +")
    first = magics.exercise(NAME, wrong)._repr_html_()
    at = [first.index(f"Hint {number} of 2</summary>") for number in (1, 2)]
    assert at == sorted(at) and first.endswith("</details></details></div>")
    assert "One solution" not in first
    again = magics.exercise(NAME, wrong.replace("+", "-"))._repr_html_()
    assert "One solution</summary>" in again and html.escape(EXERCISE.solution) in again
    assert "<summary" not in magics.exercise(NAME, cell(RIGHT))._repr_html_()


@pytest.mark.parametrize("ask", [hint, solution, find])
@pytest.mark.parametrize(
    ("name", "near"), [("mean_over_rank", NAME), ("averge_gradients", "average_gradients")]
)
def test_an_unknown_exercise_is_an_error_with_the_nearest_name(ask, name, near):
    with pytest.raises(UnknownExercise, match=f"no exercise called '{name}'") as error:
        ask(name)
    assert f"Did you mean {near}?" in str(error.value)
    assert "There are:" not in str(error.value), "fifty names would hide it"


@pytest.mark.parametrize("name", ["", "xyz", None, 3, "../catalogue", "judging"])
def test_names_that_resemble_nothing_are_refused_too(name):
    with pytest.raises(UnknownExercise, match=r"There are:\s+mean_over_ranks"):
        hint(name)
    if name is not None:  # progress() is about all pages
        with pytest.raises(UnknownExercise, match=r"There are:\s+start_here"):
            progress(name)


def test_an_unknown_chapter_is_an_error_with_the_nearest_name():
    with pytest.raises(UnknownExercise, match=r"Did you mean start_here\?"):
        progress("00_start_here")


# How a verdict looks


class TagParser(html.parser.HTMLParser):
    """The tags of some HTML, and whether each is closed."""

    def __init__(self, page: str):
        super().__init__()
        self.opened, self.stack, self.words = [], [], ""
        self.feed(page)
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.opened.append(tag)
        self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.words += f"{data} "


BAD = "<script>alert('&amp;')</script>"


def test_html_holds_the_attempts_text_as_text():
    page = Verdict(NOT_YET, BAD, [(BAD, BAD), ("x", "</pre>")], f"{BAD}\n</pre>")._repr_html_()
    tags = TagParser(page)
    assert set(tags.opened) == {"div", "pre", "details", "summary"}
    assert tags.words.count(BAD) == 4 and 'role="status"' in page


def test_html_and_text_say_the_same():
    verdict = Verdict(NOT_YET, "Not yet: f", [("called", "f(1)"), ("look at", "a\nb")], "one\ntwo")
    words = TagParser(verdict._repr_html_()).words.split()
    plain = repr(verdict).replace("printed:", "What your cell printed").split()
    assert words == plain
    assert repr(verdict).splitlines()[2:4] == ["  look at  a", "           b"]


def test_no_verdict_is_known_by_its_colour_alone(own_folder):
    titles = {
        SOLVED: examine(EXERCISE, EXERCISE.solution).title,
        NOT_YET: examine(EXERCISE, SYNTAX).title,
        NOT_ATTEMPTED: examine(EXERCISE, EXERCISE.stub).title,
    }
    assert {*titles, UNDECIDED} == set(COLOURS)
    assert all(kind in title.lower() for kind, title in titles.items())


def test_a_machine_that_is_too_busy_says_so_in_words(own_folder, monkeypatch):
    def too_busy(*args, **kwargs):
        raise HangUndecided("", seconds=300)

    monkeypatch.setattr(on_ranks, "run_ranks", too_busy)
    assert "too busy to tell (after 300 s)" in examine(EXERCISE, EXERCISE.solution).title


@pytest.mark.parametrize("colour", COLOURS.values())
@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_the_bar_can_be_seen_on_both_pages(colour, page):
    assert contrast(colour, page) >= 3


def test_long_rows_and_long_prints_are_cut():
    verdict = Verdict(NOT_YET, "Not yet", [("came back", "x" * 10**6)], "y" * 10**6 + "\nz" * 999)
    assert len(repr(verdict)) < 3000 and "970 lines before these" in repr(verdict)


# A real kernel

PRINTS, DIES = "print(value)\nreturn 0", "import os\nos._exit(1)"
HANG = cell("dist.barrier()\nopen('reached', 'w').close()\nwhile True:\n    pass")
STATE = "import random, numpy, torch\n" + (
    "state = lambda: (torch.get_rng_state().tolist(), random.getstate(), "
    "str(numpy.random.get_state()))\nbefore = state()"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A kernel's answers to a page of cells, by name: one kernel for all of them."""
    cells = {
        "state": STATE,
        "stub": f"%%exercise {NAME}\n{EXERCISE.stub}",
        "wrong": f"%%exercise {NAME}\n{cell('return vlaue')}",
        "prints": f"%%exercise {NAME}\n{cell(PRINTS)}",
        "dies": f"%%exercise {NAME}\n{cell(DIES)}",
        "right": f"%%exercise {NAME}\n{EXERCISE.solution}",
        "empty": f"%%exercise {NAME}\n",
        "same": "state() == before, __name__",
    }
    folder = tmp_path_factory.mktemp("page")
    return dict(zip(cells, run(folder, *cells.values()), strict=True)) | {"folder": folder}


@pytest.mark.push("pages in a kernel")
def test_run_all_passes_over_an_untouched_stub(page):
    assert page["stub"] == f"{NAME}: not attempted yet"


@pytest.mark.long
def test_a_wrong_attempt_is_a_verdict_with_the_pages_line(page):
    assert page["wrong"].startswith(f"Not yet: {NAME} raises NameError at 4 ranks\n")
    assert "your line 7: return vlaue" in page["wrong"]


def test_what_an_attempt_prints_stands_in_the_verdict_alone(page):
    assert page["prints"].startswith("Not yet") and page["prints"].count("[rank 3] -7.25") == 1


def test_the_kernel_outlives_an_attempt_and_its_random_numbers_are_its_own(page):
    assert "ends its process" in page["dies"]
    assert page["right"].startswith(f"{NAME} is solved: ")
    assert page["same"] == "(True, '__main__')"


def test_the_cells_are_saved_under_work(page):
    files = read_saved(page["folder"] / "work/exercises")
    assert len(files) >= 5 and files[f"{NAME}.4.py"] == EXERCISE.solution


@pytest.mark.push("pages in a kernel")
def test_interrupt_an_edit_and_an_unknown_name(kernel):
    """In the middle of a check: the kernel is usable, no process is left, the next run is fine."""
    folder = str(kernel.folder)
    kernel.run(f"%load_ext ddp_workbook\nimport os; os.chdir({folder!r})")
    assert (
        "is solved" in display_data(kernel, f"%%exercise {NAME}\n{EXERCISE.solution}")["text/plain"]
    )
    before = set(kernel.below())
    request = kernel.send(f"%%exercise {NAME}\n{HANG}")
    assert wait_until((kernel.folder / "reached").exists)
    ranks = list(set(kernel.below()) - before)
    kernel.manager.interrupt_kernel()
    start = time.monotonic()
    text = kernel.answer(request)
    assert time.monotonic() - start < 20 and wait_until(lambda: not alive(ranks))
    assert (
        "Interrupted." in text
        and "Traceback" not in text
        and re.search(r"your cell:(8|9|10)\b", text)
    )
    verdict = display_data(kernel, f"%%exercise {NAME}\n{EXERCISE.solution}")
    assert verdict["text/plain"].startswith(f"{NAME} is solved: ")
    assert verdict["text/html"].startswith('<div role="status"')
    unknown = kernel.run("%%exercise mean_over_rank\nx = 1")
    assert unknown.startswith("UnknownExercise: There is no exercise called 'mean_over_rank'. Did")
    assert "Traceback" not in unknown
    assert "There is no exercise called ''" in kernel.run("%%exercise\nx = 1")


def display_data(kernel: Kernel, code: str) -> dict[str, str]:
    """The value of a cell, by MIME type."""
    request, data = kernel.send(code), {}
    while True:
        message = kernel.client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") == request:
            data |= message["content"].get("data", {})
            if message["content"].get("execution_state") == "idle":
                return data
