"""The arguments of a class: names and defaults as installed, with words of ours."""

import inspect
from collections.abc import Mapping

import pandas as pd

NEWER = "newer than this page: see help()"


def describe_arguments(of: type, words: Mapping[str, str]) -> pd.DataFrame:
    """A row for each argument of the class: argument, default, what it does."""
    rows = []
    for name, parameter in inspect.signature(of).parameters.items():
        required = parameter.default is inspect.Parameter.empty
        default = "(required)" if required else str(parameter.default)
        rows.append((name, default, words.get(name, NEWER)))
    return pd.DataFrame(rows, columns=["argument", "default", "what it does"])
