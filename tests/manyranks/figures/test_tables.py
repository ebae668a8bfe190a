"""Tables of words."""

import re
from itertools import pairwise

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter

from ddp_workbook import text_table
from ddp_workbook.page.cells import mime_bundle
from ddp_workbook.page.display import RankValues, readable, show_frames
from ddp_workbook.page.pages import all_pages, load, source


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
    assert " ".join(lines[2:]).split() == ["1.5", *words.split()]


def test_a_text_table_in_a_kernel_is_shown_once(monkeypatch):
    """rich, which draws it for a terminal, would show it by itself."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("shown by rich"))
    assert "cores" in repr(text_table(pd.DataFrame({"what": ["cores"]})))


def test_a_frame_has_no_empty_header_in_a_kernel_and_in_a_rank():
    """Named columns and a named index make a row of them each."""
    frame = pd.DataFrame({"bytes": [4]}, index=pd.Index([0], name="rank")).rename_axis(
        columns="sent"
    )
    formatter = DisplayFormatter()
    show_frames(formatter)
    output = formatter.format(frame)[0]
    values = RankValues([mime_bundle(frame)])
    assert "<th></th>" in frame._repr_html_()
    for page in (output["text/html"], values._repr_html_()):
        head, body = page.split("<tbody>")
        assert re.findall(r"<th[^>]*>\s*(\S*?)\s*</th>", head) == ["rank", "bytes"]
        assert re.findall(r"<td[^>]*>(.*?)</td>", body) == ["0", "4"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567, "1,234,567"),
        (True, "True"),
        (0.0, "0"),
        (2.0, "2"),
        (0.012345, "0.0123"),
        (1234.5678, "1,235"),
        (99.96, "100"),
        (4.768372e-07, "4.77e-07"),
        (-float("inf"), "-inf"),
        (float("nan"), ""),
        (pd.NA, ""),
        (None, ""),
        ("a_b", "a_b"),
    ],
)
def test_numbers_are_for_reading(value, text):
    assert readable(value) == text


def test_a_long_frame_and_one_with_two_rows_of_headers_look_as_in_pandas():
    """And an index that only counts is not shown elsewhere."""
    formatter = DisplayFormatter()
    show_frames(formatter)

    def page(frame: pd.DataFrame) -> str:
        return formatter.format(frame)[0]["text/html"]

    assert "..." in page(pd.DataFrame({"n": range(1000)}))
    assert "two" in page(pd.DataFrame({("one", "two"): [1]}))
    assert re.findall(r"<td[^>]*>(.*?)</td>", page(pd.DataFrame({"n": [7]}))) == ["7"]
    assert "a" in page(pd.DataFrame({"x": [1]}, index=pd.Index(["a"], name="x")))
    for value in "<b>", ["<b>"]:
        assert "&lt;b&gt;" in page(pd.DataFrame({"x": [value]}))  # as pandas itself does
    assert "<i>" not in page(pd.DataFrame({"<i>": [1]}))


def test_no_table_of_the_pages_has_an_empty_header():
    for path in all_pages():
        for cell in load(path)["cells"]:
            lines = source(cell).splitlines()
            heads = [line for line, next in pairwise(lines) if next.startswith("|-")]
            assert not [head for head in heads if re.search(r"\| *\|", head)], path.name
