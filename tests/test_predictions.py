"""`predict` keeps what a reader expects, `reveal` and `reveal_plot` show it beside what is so."""

import re
from pathlib import Path

import numpy
import pytest
import torch

from ddp_workbook.notebook import predictions
from ddp_workbook.notebook.predictions import (
    PredictionError,
    predict,
    reveal,
    reveal_plot,
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Guesses are kept below the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(predictions, "temporary_folder", lambda: tmp_path / "instead")


def kept(name: str) -> list[str]:
    return Path("work/predictions", f"{name}.jsonl").read_text().splitlines()


def test_a_guess_is_kept_and_said():
    assert repr(predict("bytes", 1200)) == "bytes: you say 1,200."
    assert repr(predict("bytes")) == "bytes: you said 1,200 last time."
    assert kept("bytes") == ["1200"]


def test_no_guess_yet_is_no_error_and_is_not_kept(tmp_path):
    assert "Put yours in place of None" in repr(predict("bytes", None))
    assert "Put yours in place of None" in repr(predict("bytes", {"2 ranks": None, "4": None}))
    assert list(tmp_path.iterdir()) == []


def test_later_guesses_stand_beside_the_earlier_ones():
    for guess in (1, 1, 2, "more", 1):
        predict("bytes", guess)
    assert kept("bytes") == ["1", "2", '"more"', "1"]
    assert "1 last time" in repr(predict("bytes"))


def test_guesses_of_two_kernels_at_once_are_both_kept(monkeypatch):
    """The second one guesses between the first one's reading and writing."""

    def after_the_other(path, mode):
        monkeypatch.setattr(predictions, "open", open, raising=False)
        predict("bytes", 7)
        return open(path, mode)

    predict("bytes", 1)
    monkeypatch.setattr(predictions, "open", after_the_other, raising=False)
    predict("bytes", 2)
    assert kept("bytes") == ["1", "7", "2"]


def test_a_damaged_file_is_no_obstacle_and_is_left_as_it_is():
    predict("bytes", 1)
    path = Path("work/predictions/bytes.jsonl")
    path.write_bytes(b"1\n\xff\xfe no json\n{\n2")  # and no newline at its end
    predict("bytes", 3)
    assert path.read_bytes() == b"1\n\xff\xfe no json\n{\n2\n3\n"
    assert "3 last time" in repr(predict("bytes"))


def test_where_the_folder_cannot_be_written_the_guess_is_kept_elsewhere(monkeypatch):
    predict("bytes", 1)
    monkeypatch.setattr(predictions, "FOLDER", Path("/proc/no-folder-can-be-made-here"))
    assert "no guess" in repr(predict("bytes"))
    predict("bytes", 5)
    assert "5 last time" in repr(predict("bytes"))
    assert reveal("bytes", measured=6).loc["bytes", "your guess"] == 5


def test_where_nothing_can_be_written_it_says_so(monkeypatch):
    nowhere = Path("/proc/no-folder-can-be-made-here")
    monkeypatch.setattr(predictions, "FOLDER", nowhere)
    monkeypatch.setattr(predictions, "temporary_folder", lambda: nowhere)
    with pytest.raises(PredictionError, match="could not be kept"):
        predict("bytes", 1)


class Broken:
    def __repr__(self):
        raise ValueError


@pytest.mark.parametrize(
    "nonsense",
    [
        True,
        float("nan"),
        float("inf"),
        10**400,
        1j,
        "",
        "  ",
        "x" * 1000,
        [1, 2],
        {1, 2},
        {"a": {"b": 1}},
        {"a": [1]},
        {"a": True},
        torch.tensor(1.0),
        torch.zeros(10**6),
        numpy.zeros(3),
        predict,
        Broken(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nonsense_is_refused_in_words(nonsense, tmp_path):
    with pytest.raises(PredictionError) as error:
        predict("bytes", nonsense)
    text = str(error.value)
    assert text.startswith("A guess for bytes") and "is a number" in text and len(text) < 250
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "two words", "../up", "a/b", ".", None, 3, "a.b"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(PredictionError, match="is no name for a guess"):
        predict(name, 1)


def test_numbers_of_other_libraries_are_numbers():
    for guess in (numpy.int64(3), numpy.float32(0.5), 2**70, -1.5, 0):
        predict("bytes", guess)
    assert kept("bytes") == ["3", "0.5", str(float(2**70)), "-1.5", "0"]


def test_guess_formula_and_measurement_stand_side_by_side():
    predict("bytes", {2: 100, 4: 300})
    table = reveal("bytes", formula={2: 100, 4: 200}, measured={2: 104, 4: 208}, unit="ranks")
    assert list(table.columns) == ["your guess", "formula", "measured"]
    assert table.index.name == "ranks" and table.index.tolist() == ["2", "4"]
    assert table.to_numpy().tolist() == [[100, 100, 104], [300, 200, 208]]


def test_a_guess_that_was_not_made_is_said():
    assert reveal("bytes", formula=3, measured=4).loc["bytes"].tolist() == ["no guess", 3, 4]
    predict("bytes", {"a": 1, "b": None})
    assert reveal("bytes", measured={"a": 5, "b": 6})["your guess"].tolist() == [1, "no guess"]
    assert list(reveal("bytes", measured=1).columns) == ["your guess", "measured"]


def test_a_guess_of_cases_beside_one_measurement_is_shown_in_words():
    predict("bytes", {"a": 1, "b": 2})
    assert reveal("bytes", measured=5).loc["bytes", "your guess"] == "1 for a, 2 for b"


@pytest.mark.parametrize("guess", [None, {"2": 10, "4": 30}, {"2": "more", "4": 5}, 7])
def test_the_picture_has_every_number_in_its_alt_text(guess):
    if guess is not None:
        predict("bytes", guess)
    picture = reveal_plot(
        "bytes", formula={2: 10, 4: 20}, measured={2: 11, 4: 21.5}, xlabel="ranks", ylabel="bytes"
    )
    alt = re.search(r'alt="([^"]*)"', picture._repr_html_())[1]
    assert alt.startswith("bytes for each case. 2: your guess ")
    assert all(words in alt for words in ("formula 10, measured 11", "formula 20, measured 21.5"))
    given = guess if isinstance(guess, dict) else {"2": guess, "4": guess}
    for case, one in given.items():
        assert f"{case}: your guess {'no guess' if one is None else one}" in alt
