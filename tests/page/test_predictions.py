"""`predict` asks and keeps a guess, clicked or typed; `reveal` shows it beside the answer."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from ddp_workbook.judging.reader import progress
from ddp_workbook.page import guesses
from ddp_workbook.page.guesses import TOO_LATE, load_guess, settle
from ddp_workbook.page.predictions import predict, reveal
from ddp_workbook.page.questions import QuestionError, find
from manyranks.errors import RankFailed
from manyranks.files import temporary_folders
from tests.leaks import no_temporary_folder_yet  # noqa: F401 (a fixture)


def reveal_text(name: str, answer: object = None) -> str:
    """What `reveal` shows."""
    question = find(name)
    return repr(settle(question, answer if answer is None else question.answer(answer)))


WORDS = "function_of_a_cell"
CHOICE, NUMBER = "order_of_greetings", "sum_of_six_ranks"  # c is right, and 21


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch, no_temporary_folder_yet):  # noqa: F811
    """Guesses are kept below the current folder; the kernel has shown no answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(guesses, "KNOWN_ANSWERS", {})


@pytest.fixture(autouse=True)
def no_slips(monkeypatch):
    """Whoever chooses twice has thought twice."""
    monkeypatch.setattr(guesses, "CORRECTION_S", 0.0)


@pytest.fixture
def restart(monkeypatch):
    """What a restart of the kernel forgets."""

    def forget() -> None:
        monkeypatch.setattr(guesses, "KNOWN_ANSWERS", {})

    return forget


def marked_letters(widget) -> list[str]:
    """The letters of the buttons that are marked."""
    return [letter for letter, button in widget.buttons.items() if button.icon]


# Asked


def test_a_click_keeps_the_guess_and_marks_the_button():
    widget = predict(CHOICE)
    assert list(widget.buttons) == ["a", "b", "c"] and marked_letters(widget) == []
    widget.buttons["b"].click()
    assert load_guess(CHOICE).now == "b" and marked_letters(widget) == ["b"]
    assert "Your guess: b." in widget.status.value and 'role="status"' in widget.status.value
    assert temporary_folders() == []  # a kernel that is killed would leave it behind


def test_a_number_is_typed_into_the_field():
    widget = predict(NUMBER)
    widget.field.value = "1,5x"
    assert "is a number" in widget.status.value and load_guess(NUMBER) is None
    widget.field.value = " 1,500 "
    assert load_guess(NUMBER).now == 1500 and "Your guess: 1,500." in widget.status.value


def test_buttons_can_be_read_and_reached():
    """By a screen reader, which reads a button's words, and by the tab key."""
    widget = predict(CHOICE)
    words = [button.description for button in widget.buttons.values()]
    assert words[0] == "a) 0, 1, 2, 3"
    assert all(button.tabbable is not False for button in widget.buttons.values())
    assert predict(NUMBER).field.description == "your guess"


@pytest.mark.parametrize("guess", ["c", "C", 3, "3"], ids=repr)
def test_a_guess_can_be_typed(guess):
    assert "Your guess: c." in repr(predict(WORDS, guess))
    assert "Your guess: c." in repr(predict(WORDS, find(WORDS).choices[2]))


def test_a_number_is_no_place_in_a_list_of_numbers():
    """2 is the second of the choices 1, 2 and 4; 3 is none of them."""
    assert "Your guess: b." in repr(predict("norm_of_the_whole", 2))
    with pytest.raises(QuestionError):
        predict("norm_of_the_whole", 3)


@pytest.mark.parametrize("guess", [-1.5, 2**70, "0.5", "52,520", torch.tensor(3.0).item()])
def test_a_number_can_be_typed(guess):
    predict(NUMBER, guess)
    assert load_guess(NUMBER).now == float(str(guess).replace(",", ""))


@pytest.mark.parametrize(
    "nonsense",
    [
        True,
        float("nan"),
        "inf",
        1j,
        "",
        "b",
        "21,0",
        "1,23",
        [1],
        {"a": 1},
        torch.zeros(9),
        predict,
    ],
)
def test_nonsense_is_refused_in_words_and_nothing_is_kept(nonsense, tmp_path):
    with pytest.raises(QuestionError) as error:
        predict(NUMBER, nonsense)
    assert "A guess for sum_of_six_ranks is a number" in str(error.value)
    with pytest.raises(QuestionError, match="Choose one letter:\n  a  0, 1, 2, 3"):
        predict(CHOICE, 4)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_nobody_asks_for_is_refused_with_the_nearest():
    for call in (predict, reveal):
        with pytest.raises(QuestionError, match="Did you mean 'sum_of_six_ranks'"):
            call("sum_of_six_rank")


def test_where_no_click_is_answered_there_is_text():
    """For nbclient, a book, a terminal; the question is complete, and says how to answer."""
    shown = predict(CHOICE)._repr_mimebundle_()
    for text in (shown["text/plain"], shown["text/html"]):
        assert all(choice in text for choice in find(CHOICE).choices)
        assert find(CHOICE).ask in text
    assert 'Type predict("order_of_greetings", "a")' in shown["text/plain"]


# A second guess


def test_a_second_guess_stands_beside_the_first():
    widget = predict(CHOICE)
    for letter in "abc":
        widget.buttons[letter].click()
    assert (load_guess(CHOICE).first, load_guess(CHOICE).now) == ("a", "c")
    assert "Your guess: c. At first: a." in widget.status.value and marked_letters(widget) == ["c"]


def test_a_slip_is_no_first_guess(monkeypatch):
    monkeypatch.setattr(guesses, "CORRECTION_S", 60.0)
    widget = predict(CHOICE)
    for letter in "ab":
        widget.buttons[letter].click()
    assert (load_guess(CHOICE).first, load_guess(CHOICE).now) == ("b", "b")


# Revealed


def test_guess_answer_and_why_stand_side_by_side():
    predict(NUMBER, 15)
    assert reveal_text(NUMBER, 21.0).startswith("Your guess: 15. The answer: 21. Rank r starts")
    predict(CHOICE, "c")
    assert reveal_text(CHOICE).startswith("Right: any order, and it can change")


def test_after_the_answer_nobody_guesses():
    """Neither by a click nor by typing; with and without an earlier guess."""
    widget = predict(CHOICE, "a")
    field = predict(NUMBER).field
    reveal(CHOICE)
    reveal(NUMBER)
    assert all(button.disabled for button in widget.buttons.values()) and field.disabled
    assert "Your guess: 0, 1, 2, 3. The answer: any order" in widget.status.value
    widget.buttons["c"].click()
    field.value = "21"
    assert TOO_LATE in repr(predict(CHOICE, "b")) and TOO_LATE in repr(predict(NUMBER, 21))
    assert load_guess(CHOICE).now == "a" and load_guess(NUMBER) is None
    assert "The answer: 21." in reveal_text(NUMBER, 21)


def test_a_measured_answer_counts_and_anything_else_is_shown_above(capsys):
    predict(CHOICE, "a")
    reveal(CHOICE, "0, 1, 2, 3")
    assert "Right:" in capsys.readouterr().out
    reveal(CHOICE, pd.DataFrame({"a column": [3]}))
    shown = capsys.readouterr().out
    assert shown.index("a column") < shown.index("The answer: any order")
    reveal(NUMBER, torch.tensor(20))
    assert "The answer: 20." in capsys.readouterr().out


# Restarts, two pages, folders that are read-only


def test_a_restart_keeps_the_guess_and_what_was_shown(restart):
    predict(CHOICE, "a")
    reveal(NUMBER)
    restart()
    assert marked_letters(predict(CHOICE)) == ["a"]
    assert not predict(NUMBER).field.disabled, "no guess was made: there is one to make"
    reveal(CHOICE)
    restart()
    assert predict(CHOICE).buttons["b"].disabled


def test_where_the_folder_cannot_be_written_the_guess_is_kept_elsewhere_and_it_is_said(monkeypatch):
    monkeypatch.chdir("/proc")
    widget = predict(NUMBER)
    widget.field.value = "5"
    assert "until this kernel ends" in widget.status.value and "cannot be written" in repr(widget)
    assert "Your guess: 5." in reveal_text(NUMBER, 6)


@pytest.mark.parametrize("text", ["", "5", "[]", '{"first": 1}', "\x00"])
def test_a_damaged_file_is_no_guess(text):
    predict(NUMBER, 5)
    (path,) = Path("work/predictions").iterdir()
    path.write_text(text)
    assert load_guess(NUMBER) is None
    predict(NUMBER, 6)
    assert load_guess(NUMBER).now == 6


# On a page


def test_the_end_of_a_page_tells_the_surprises():
    assert "Questions of this page: 0 of 3 guessed." in repr(progress("start_here"))
    predict(NUMBER, 15)
    predict(CHOICE, "c")
    assert "2 of 3 guessed, 0 right." in repr(progress("start_here"))
    reveal(NUMBER)
    reveal(CHOICE)
    shown = progress("start_here")
    assert "2 of 3 guessed, 1 right." in repr(shown)
    assert repr(shown).endswith(f"{find(NUMBER).ask} Your guess: 15. The answer: 21.")
    assert f"<li>{find(NUMBER).ask} Your guess: 15. The answer: 21.</li>" in shown._repr_html_()


def test_a_cell_on_ranks_shows_the_answer_below_what_they_did_or_above_their_error(capsys):
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "ddp_workbook")
    predict(CHOICE, "a")
    cell = "f'value {rank}'"
    shell.run_cell_magic("ranks", f"2 --reveal {CHOICE}", cell)
    shown = capsys.readouterr().out
    assert shown.index("value 1") < shown.index("The answer: any order")
    with pytest.raises(RankFailed):
        shell.run_cell_magic("ranks", f"2 --reveal {CHOICE}", "1 / 0")
    assert "The answer: any order" in capsys.readouterr().out


def test_what_ranks_import_brings_no_widgets():
    code = "import sys, ddp_workbook.page.predictions; print('ipywidgets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == (
        "False\n"
    )
