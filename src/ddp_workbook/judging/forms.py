"""Whether a value has the form that a function's annotation promises, and both in words.

Equivalent types fit: a tuple in the place of a list, any library's number in the place of a number,
and a tensor or an array with one element in the place of a float.
"""

import math
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from ddp_workbook.judging.equality import is_index, is_number, kind

PLURALS = {int: "int", float: "numbers", str: "str", list: "lists", tuple: "tuples"}


def misfit(value: Any, annotation: Any) -> str:
    """What a value is that does not fit, such as "a list with None in it"; "" if it fits."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        misfits = [misfit(value, one) for one in inside]
        return "" if "" in misfits else misfits[0]
    items = list(value) if isinstance(value, list | tuple) else []
    if origin is list:
        pairs = [(item, inside[0]) for item in items]
    elif origin is tuple:
        pairs = [*zip(items, inside, strict=False)]
        if isinstance(value, list | tuple) and len(items) != len(inside):
            return f"{kind(value)} of {len(items)}"
    elif origin is dict:
        numbers = float if inside[1] is int else inside[1]  # 2.0 is as good as 2
        pairs = [(item, numbers) for item in value.values()] if is_mapping(value) else []
    elif not fits_plain(value, annotation):
        return kind(value)
    else:
        return ""
    if not (is_mapping(value) if origin is dict else isinstance(value, list | tuple)):
        return kind(value)
    problems = (misfit(*pair) for pair in pairs)
    words = (f"{kind(value)} with {one.removesuffix(' in it')} in it" for one in problems if one)
    return next(words, "")


def is_mapping(value: Any) -> bool:
    """Whether it is a dict, of any library's kind."""
    return isinstance(value, Mapping)


def fits_plain(value: Any, annotation: Any) -> bool:
    """Whether a value fits a type that has no others in it."""
    if annotation is NoneType:
        return value is None
    if annotation is int:
        return is_index(value)
    if annotation is float:
        return number(value) is not None
    return annotation is Any or isinstance(value, annotation)


def number(value: Any) -> float | int | None:
    """A number of any library, or the only element of a tensor or array; else None."""
    if hasattr(value, "item") and math.prod(getattr(value, "shape", (0,))) == 1:
        value = value.item()
    return value if is_number(value) else None


def in_words_of_type(annotation: Any, plural: bool = False) -> str:
    """ "a list of lists of int", "a pair (int, str), or None"."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is UnionType:
        return ", or ".join(map(in_words_of_type, inside))
    if origin is list:
        return f"{'lists' if plural else 'a list'} of {in_words_of_type(inside[0], plural=True)}"
    if origin is tuple:
        names = ", ".join(getattr(one, "__name__", f"{one}") for one in inside)
        return f"{'tuples' if plural else 'a tuple'} ({names})"
    if origin is dict:
        numbers = inside[1] in (int, float)
        return f"a dict of {'plain numbers' if numbers else in_words_of_type(inside[1], True)}"
    if annotation is NoneType:
        return "None"
    name = getattr(annotation, "__name__", f"{annotation}")
    return PLURALS.get(annotation, f"{name}s") if plural else f"a {name}"
