"""What an all-reduce takes on a network that was ordered, against the formula."""

from benchmarks.table import Line, Spread, ratio_text, spread
from benchmarks.workers.all_reduce import time_all_reduces
from manyranks.launcher.calls import call_of
from manyranks.launcher.launch import run_ranks
from manyranks.network.links import network

NETWORK = "1 Gbit/s, 1 ms"
SIZES = {"1 kB": 1_000, "100 kB": 100_000, "1 MB": 1_000_000, "64 MB": 64_000_000}
MAX_RATIO = 1.05  # times the formula, at most; never below it


def measure(quick: bool = False) -> list[Line]:
    """A line for each size of a message between two ranks."""
    return [line(name, size, 3 if quick else 9) for name, size in SIZES.items()]


def line(name: str, size: int, repeats: int) -> Line:
    """From the last rank's entry, the median, as a ratio to what the network says."""
    formula_s = network(NETWORK).seconds("all_reduce", size, [0, 1], 2)
    call = call_of(time_all_reduces, (size, repeats), {}, 2)
    times = spread(map(min, zip(*run_ranks(call, 2, quiet=True, network=NETWORK), strict=True)))
    ratio = Spread(*(value / formula_s for value in times[:3]), times.count)
    return Line(
        f"all-reduce of {name} on {NETWORK}",
        f"{1e3 * times.median:.1f} ms",
        times.median,
        f"formula: {1e3 * formula_s:.1f} ms",
        ratio.median,
        ratio_text(ratio, "times as long"),
        target=f"1 to {MAX_RATIO:g} times",
        met=1 <= ratio.median <= MAX_RATIO,
    )
