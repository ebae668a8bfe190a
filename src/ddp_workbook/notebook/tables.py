"""Tables of words: set to the left and wrapped, where pandas sets everything to the right."""

import pandas as pd
from pandas.io.formats.style import Styler


def text_table(frame: pd.DataFrame) -> Styler:
    """The frame as a table to read in a notebook: left-aligned, long cells wrapped, no index.

    Without the index no header cell is empty, which screen readers stumble over.
    """
    left = {"text-align": "left", "white-space": "normal", "vertical-align": "top"}
    headers = [{"selector": "th", "props": [("text-align", "left")]}]
    return frame.style.hide(axis="index").set_properties(**left).set_table_styles(headers)
