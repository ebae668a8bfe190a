"""`make figures`: the committed pictures are what the code draws, from what was recorded."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from tools import animation, figures
from tools.set_up import ROOT

FIGS = ROOT / "figs"


def test_every_picture_is_drawn_again_byte_for_byte(tmp_path):
    drawn = figures.draw(tmp_path)
    assert {path.name for path in drawn} == {path.name for path in FIGS.iterdir()}
    for path in drawn:
        assert path.read_bytes() == (FIGS / path.name).read_bytes(), path.name


def test_the_readme_shows_a_run_as_it_is_today():
    """Its cells run, the hang is found, and the report is the recorded one but for the limit.

    That is longer here, because a busy machine takes seconds until all ranks wait.
    """
    now, recorded = animation.record(limit=12), animation.read_record()
    assert now["values"] == recorded["values"] == ["6.0"] * animation.RANKS
    assert [anonymous(line) for line in now["report"]] == [
        anonymous(line) for line in recorded["report"]
    ]
    assert now["hang_seconds"] >= 12


def anonymous(line: str) -> str:
    """A line without the time limit."""
    return re.sub(r"within \d+ s", "in time", line)


def test_the_picture_holds_what_was_recorded():
    """Every word of the report and of both cells, in lines that fit the picture."""
    root = ET.parse(FIGS / "readme.svg").getroot()
    shown = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    recorded = json.loads(animation.RUN.read_text())
    words = [
        line for name in animation.CELLS for line in "\n".join(animation.CELLS[name]).split("\n")
    ]
    assert set(words) <= set(shown)
    assert " ".join(recorded["report"]).split() == " ".join(shown[-len(lines(recorded)) :]).split()
    assert max(map(len, shown)) * 8.45 < animation.WIDTH - 2 * animation.MARGIN
    assert root.find("{http://www.w3.org/2000/svg}desc").text == animation.alt_text(recorded)


def lines(run: dict) -> list[str]:
    """The report as the picture breaks it."""
    return animation.wrap_report(run["report"])


def test_it_moves_by_itself_and_stands_still_where_that_is_asked_for():
    text = (FIGS / "readme.svg").read_text()
    assert "@keyframes" in text and "prefers-reduced-motion" in text
    assert "<script" not in text and "http" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("words", [["--recrod"], ["--record", "x"]])
def test_other_words_are_refused(monkeypatch, words):
    monkeypatch.setattr(figures.sys, "argv", ["figures", *words])
    with pytest.raises(SystemExit, match="ARGS=--record"):
        figures.main()
