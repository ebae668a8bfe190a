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
