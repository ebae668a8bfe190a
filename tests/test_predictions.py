"""`predict` keeps a reader's guess; `reveal` and `reveal_plot` show it beside the measurement."""

import json
import re
from pathlib import Path

import numpy
import pytest
import torch

from ddp_workbook.files import temporary_folders
from ddp_workbook.notebook import predictions
from ddp_workbook.notebook.predictions import (
    PredictionError,
    predict,
    reveal,
    reveal_plot,
)
from tests.leftovers import no_temporary_folder_yet  # noqa: F401 (a fixture)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch, no_temporary_folder_yet):  # noqa: F811
    """Guesses are kept below the current folder."""
    monkeypatch.chdir(tmp_path)


def kept(name: str):
    [path] = Path("work/predictions").glob(f"{name}.*.json")
    return json.loads(path.read_text())


def test_a_guess_is_kept_and_said():
    assert repr(predict("bytes", 1200)) == "bytes: you say 1,200."
    assert repr(predict("bytes")) == "bytes: you said 1,200 last time."
    assert kept("bytes") == 1200
    assert temporary_folders() == []  # a kernel that is killed would leave it behind


def test_no_guess_yet_is_no_error_and_is_not_kept(tmp_path):
    assert "Put yours in place of None" in repr(predict("bytes", None))
    assert "Put yours in place of None" in repr(predict("bytes", {"2 ranks": None, "4": None}))
    assert list(tmp_path.iterdir()) == []


def test_a_later_guess_takes_the_place_of_the_earlier_one():
    for guess in (1, "more"):
        predict("bytes", guess)
    assert "more last time" in repr(predict("bytes"))
    assert kept("bytes") == "more"


def test_where_the_folder_cannot_be_written_the_guess_is_kept_elsewhere(monkeypatch):
    predict("bytes", 1)
    monkeypatch.setattr(predictions, "FOLDER", Path("/proc/no-folder-can-be-made-here"))
    assert "no guess" in repr(predict("bytes"))
    predict("bytes", 5)
    assert "5 last time" in repr(predict("bytes"))
    assert reveal("bytes", measured=6).loc["bytes", "your guess"] == 5


@pytest.mark.parametrize(
    "nonsense",
    [
        True,
        float("nan"),
        float("inf"),
        1j,
        "",
        "  ",
        [1, 2],
        {1, 2},
        {"a": {"b": 1}},
        {"a": [1]},
        {"a": True},
        torch.tensor(1.0),
        torch.zeros(10**6),
        numpy.zeros(3),
        predict,
    ],
    ids=lambda value: type(value).__name__,
)
def test_nonsense_is_refused_in_words(nonsense, tmp_path):
    with pytest.raises(PredictionError) as error:
        predict("bytes", nonsense)
    text = str(error.value)
    assert text.startswith("A guess for bytes") and "is a number" in text and len(text) < 250
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_other_libraries_are_numbers():
    for guess in (numpy.int64(3), numpy.float32(0.5), 2**70, -1.5, 0):
        predict("bytes", guess)
        assert kept("bytes") == guess


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
