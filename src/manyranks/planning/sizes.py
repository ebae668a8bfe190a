"""Reads and shows sizes as people write them: "70B" parameters, "80GB" of memory."""

import difflib
import re
from contextlib import suppress
from operator import index

from manyranks.errors import WorkbookError

COUNTS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
BYTES = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
MIN_GPU_BYTES, MAX_GPU_BYTES = 10**8, 10**13  # bytes of memory that a GPU may have
NUMBER_AND_UNIT = re.compile(r"\s*([+-]?[\d_,]*\.?\d+(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")


class PlanRefused(WorkbookError, ValueError):
    """A plan that cannot be made as asked: which input, and what to write instead."""


def parameter_count(text: str | int | float, name: str = "parameters") -> int:
    """The number in "70B", "0.5B", "350M" or 70_000_000_000. Raises PlanRefused with a remedy."""
    number, unit = split_number_and_unit(text, name, 'such as "70B" (billion) or "350M" (million)')
    unit = unit.upper()
    if unit not in ("", *COUNTS):
        raise PlanRefused(
            f"{name}={text!r}: there is no unit {unit!r} for a count. "
            'Write K, M, B (billion) or T: "70B".'
        )
    return positive(number * COUNTS.get(unit, 1), text, name)


def byte_count(text: str | int | float, name: str = "memory") -> int:
    """The bytes in "80GB" (10^9 each) or "80GiB" (2^30), or a number of bytes from 10^8.

    Refuses a small number without a unit, since anyone who writes 80 means GB or GiB, and a size
    that no GPU has. Raises PlanRefused with a remedy.
    """
    number, unit = split_number_and_unit(text, name, 'such as "80GB"')
    known = {key.lower(): size for key, size in BYTES.items()}
    if not unit and abs(number) < MIN_GPU_BYTES:
        raise PlanRefused(f'{name}={text!r} has no unit. Write "{number:g}GB", if you mean that.')
    if unit and unit.lower() not in known:
        close = difflib.get_close_matches(unit, BYTES, n=1, cutoff=0.3)
        guess = f' Did you mean "{number:g}{close[0]}"?' if close else ""
        raise PlanRefused(
            f"{name}={text!r}: there is no unit {unit!r}.{guess} "
            "Units are GB (10^9 bytes), GiB (2^30), and M or T in place of G."
        )
    size = positive(number * known.get(unit.lower(), 1), text, name)
    if not MIN_GPU_BYTES <= size <= MAX_GPU_BYTES:
        raise PlanRefused(f"{name}={text!r}: no GPU has that; GPUs have 0.1 GB to 10 TB.")
    return size


def whole_number(value: object, name: str, least: int = 1, most: int = 1_048_576) -> int:
    """`value` as an int from `least` to `most`. Raises PlanRefused with the range."""
    original = value
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d[\d_,]*\s*", value):
        value = int(value.replace(",", ""))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if hasattr(value, "__index__") and not isinstance(value, bool):  # numpy's and torch's as well
        with suppress(TypeError):  # a tensor of other numbers, or of several
            value = index(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise PlanRefused(f"{name}={original!r} is not a whole number from {least:,} to {most:,}.")
    return value


def one_of(value: object, name: str, known: list[str]) -> str:
    """The name in `known` that `value` means, ignoring case and punctuation; or PlanRefused."""
    plain = {normalize(word): word for word in known}
    if isinstance(value, str) and normalize(value) in plain:
        return plain[normalize(value)]
    close = difflib.get_close_matches(normalize(str(value)), plain, n=1, cutoff=0.4)
    guess = f' Did you mean "{plain[close[0]]}"?' if close else ""
    raise PlanRefused(f"{name}={value!r} is not known.{guess} There are: {', '.join(known)}.")


def format_bytes(size: float) -> str:
    """Bytes for people: 12.3 GB, in powers of ten as vendors count them."""
    return format_scaled(size, {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}) or f"{size:.0f} bytes"


def format_gb(size: float) -> str:
    """A GPU's memory as its vendor writes it: 80 GB, 85.9 GB."""
    return f"{size / 1e9:.3g} GB"


def format_count(number: float) -> str:
    """A number of parameters for people: 70.6 B."""
    return format_scaled(number, {"T": 1e12, "B": 1e9, "M": 1e6, "K": 1e3}) or f"{number:.0f}"


def format_seconds(seconds: float) -> str:
    """Seconds for people: 1.23 s, 45.0 ms."""
    return format_scaled(seconds, {"s": 1.0}) or f"{three_digits(seconds * 1e3)} ms"


def format_scaled(number: float, units: dict[str, float]) -> str:
    """The number in the first unit that it reaches, with three digits; "" if it reaches none."""
    reached = (unit for unit, scale in units.items() if abs(number) >= 0.9995 * scale)
    unit = next(reached, "")
    return unit and f"{three_digits(number / units[unit])} {unit}"


def three_digits(number: float) -> str:
    """Three digits in all: 1.23, 12.3, 123."""
    return f"{number:.{2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0}f}"


def split_number_and_unit(text: str | int | float, name: str, example: str) -> tuple[float, str]:
    """Number and unit. Raises PlanRefused if there is no number."""
    match = NUMBER_AND_UNIT.fullmatch(str(text)) if isinstance(text, str | int | float) else None
    if match is None or isinstance(text, bool):
        raise PlanRefused(
            f"{name}={text!r} is not understood. Write a number and a unit, {example}."
        )
    return float(match[1].replace(",", "").replace("_", "")), match[2]


def positive(number: float, text: object, name: str) -> int:
    """`number`, rounded. Raises PlanRefused if it is below 1 or impossibly large."""
    if not 1 <= number <= 1e18:
        size = "must be above 0" if number < 1 else "is larger than anything that exists"
        raise PlanRefused(f"{name}={text!r} {size}.")
    return round(number)


def normalize(word: str) -> str:
    """The letters and digits of a word, in lower case."""
    return re.sub(r"[^a-z0-9]", "", word.lower())
