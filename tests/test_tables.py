"""Tables of words."""

import re

import pandas as pd

from ddp_workbook import text_table


def test_a_text_table_has_no_empty_header_and_keeps_every_word():
    words = "a long sentence " * 20
    page = text_table(pd.DataFrame({"what": ["cores"], "meaning": [words]})).to_html()
    assert re.findall(r"<th[^>]*>([^<]*)</th>", page) == ["what", "meaning"]
    assert words in page
    assert "text-align: left" in page


def test_a_text_table_in_a_terminal_keeps_every_word(monkeypatch):
    """Long cells are wrapped to the terminal's width; [this] is no markup."""
    monkeypatch.setenv("COLUMNS", "60")
    words = "[bold]Give these two versions[/] whenever you ask about a measurement"
    lines = repr(text_table(pd.DataFrame({"what": [1.5], "meaning": [words]}))).splitlines()
    assert max(map(len, lines)) <= 60 < len(words)
    assert lines[0].split() == ["what", "meaning"]
    assert " ".join(lines[2:]).split() == ["1.500000", *words.split()]
