"""Networks as a reader orders them: "10 Gbit/s, 20 µs", a preset, several nodes, a larger model.

What a call takes on one is Hockney's model (1994) of a ring: alpha seconds for each step and beta
seconds for each byte that a rank sends (Patarasuk and Yuan, 2009, for the bytes).
"""

import difflib
import itertools
import json
import math
import re
from dataclasses import asdict, dataclass
from typing import Self

from manyranks.errors import LaunchRefused
from manyranks.planning.hardware import (
    GBIT,
    INTER_NODE_LINKS,
    INTRA_NODE_LINKS,
    NETWORK_STEP_S,
    Link,
)

GIGABIT = Link("Ethernet 1G", GBIT, NETWORK_STEP_S, "IEEE 802.3ab, 1999; one port a node", True)
PRESETS = {link.name: link for link in (*INTRA_NODE_LINKS, *INTER_NODE_LINKS, GIGABIT)}
PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
RATE = re.compile(r"([-+.\de]+) *([kMGT]?)(bit/s|b/s|bps|bit|B/s)")
TIME = re.compile(r"([-+.\de]+) *(s|ms|us|µs|μs|ns)")  # the micro sign, and the Greek letter
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
EXAMPLES = '"10 Gbit/s, 20 µs", "NVLink 4", or "Ethernet 10G; 2 nodes; inside NVLink 4"'
# What each of N ranks sends of a collective's bytes, and how often the call goes around the ring.
BYTES_FACTORS = dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), lambda n: (n - 1) / n)
BYTES_FACTORS |= {"all_reduce": lambda n: 2 * (n - 1) / n, "barrier": lambda _: 0}
BYTES_FACTORS |= dict.fromkeys(("broadcast", "reduce"), lambda _: 1)
BYTES_FACTORS |= dict.fromkeys(("gather", "scatter"), lambda n: n - 1)
ROUNDS = {"all_reduce": 2, "barrier": 2}


@dataclass(frozen=True)
class Network:
    """`bytes_per_second` in one direction and `latency` seconds a step, of each rank's only port.

    With several `nodes` these are those of a node's only port, of which each of its ranks has an
    equal share, whether the others send or not. With `port_a_rank`, as with InfiniBand, each rank
    has such a port for itself. The ranks of a group that leave a node do so over all their ports. A
    rank reaches the others of its node over `inside_bytes_per_second` and `inside_latency`. Ranks
    are numbered node by node. Every message counts as `scale` times as large as it is, so that a
    small model can behave as a large one would.
    """

    bytes_per_second: float
    latency: float = 0.0
    nodes: int = 1
    inside_bytes_per_second: float = float("inf")
    inside_latency: float = 0.0
    scale: float = 1.0
    port_a_rank: bool = False

    def check(self, ranks: int) -> None:
        """Raise LaunchRefused if so many ranks do not fill these nodes evenly."""
        if ranks % self.nodes:
            raise LaunchRefused(
                f"The network has {self.nodes} nodes, and {ranks} ranks do not fill them evenly. "
                "Take a number of ranks that is a multiple of the nodes."
            )

    def seconds(self, op: str, size: int, members: list[int], ranks: int) -> float:
        """Seconds of a call in a ring of `members`, global ranks of a launch of `ranks` ranks.

        `op` is the name of the function of torch.distributed, without _into_tensor and the like.
        `size` is in bytes: of what is handed in or received, whichever is more, and of one rank's
        part in a gather or scatter. The ring takes N - 1 steps and sends (N - 1) / N of the bytes
        from each rank, an all-reduce twice that; a broadcast or reduce passes all bytes along the
        ring; the root of a gather or scatter has N - 1 parts to receive or send; a barrier is an
        all-reduce of nothing.
        """
        latency, rate = self._path(members, ranks)
        number, transfer = len(members), size * self.scale / rate
        if op in ("send", "recv"):
            return latency + transfer
        if number == 1:
            return 0.0
        return ROUNDS.get(op, 1) * latency + transfer * BYTES_FACTORS[op](number)

    def _path(self, members: list[int], ranks: int) -> tuple[float, float]:
        """The latency once along the ring, and the bytes per second of its slowest link."""
        if self.nodes == 1:
            return (len(members) - 1) * self.latency, self.bytes_per_second
        in_node = ranks // self.nodes
        places = [member // in_node for member in members]
        crossings = sum(here != there for here, there in itertools.pairwise(places))
        latency = (len(members) - 1 - crossings) * self.inside_latency + crossings * self.latency
        if not crossings:
            return latency, self.inside_bytes_per_second
        ports = max(map(places.count, places)) / (1 if self.port_a_rank else in_node)
        inside = self.inside_bytes_per_second if crossings < len(members) - 1 else math.inf
        return latency, min(inside, ports * self.bytes_per_second)

    def to_json(self) -> str:
        """As JSON, for the environment of a rank."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The network that `to_json` wrote."""
        return cls(**json.loads(text))


def network(order: "str | Network") -> Network:
    """The network that is ordered: rate and latency, or a preset, then what is not the default.

    "1 Gbit/s, 0.5 ms", "Ethernet 10G", "100 Mbit/s; scale 1000", "Ethernet 10G; 2 nodes; inside
    NVLink 4". The presets are the planner's links, with their sources.

    Raises LaunchRefused, which names the part that is not understood.
    """
    if isinstance(order, Network):
        return order
    if not isinstance(order, str):
        raise LaunchRefused(
            f"network={order!r} is no network. Order one such as {EXAMPLES}. An argument of this "
            "name that is the worker's own is given by its place."
        )
    first, *others = [part.strip() for part in order.split(";")]
    rate, latency = link(first)
    settings: dict = {"bytes_per_second": rate, "latency": latency}
    settings["port_a_rank"] = first in PRESETS and not PRESETS[first].per_node
    for part in others:
        if match := re.fullmatch(r"(\d+) nodes?", part):
            settings["nodes"] = positive(match[1], part)
        elif match := re.fullmatch(r"scale ([-+.\de]+)", part):
            settings["scale"] = positive(match[1], part)
        elif part.startswith("inside "):
            inside = link(part.removeprefix("inside "))
            settings |= {"inside_bytes_per_second": inside[0], "inside_latency": inside[1]}
        else:
            raise LaunchRefused(
                f"network: {part!r} is none of "
                '"2 nodes", "inside NVLink 4" and "scale 1000", which may follow a ";".'
            )
    settings["nodes"] = int(settings.get("nodes", 1))
    return Network(**settings)


def link(text: str) -> tuple[float, float]:
    """Bytes per second and seconds a step of "10 Gbit/s, 20 µs" or of a preset."""
    if text in PRESETS:
        return PRESETS[text].bytes_per_second, PRESETS[text].latency
    rate, *rest = [part.strip() for part in text.split(",")]
    match = RATE.fullmatch(rate)
    if not match or len(rest) > 1:
        near = difflib.get_close_matches(text, PRESETS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise LaunchRefused(
            f"network: {text!r} is no link.{hint} Write {EXAMPLES}. A rate is in bit/s or B/s, "
            f"with k, M, G or T before it. The presets are {', '.join(PRESETS)}."
        )
    per_second = positive(match[1], rate) * PREFIXES[match[2]] / (1 if match[3] == "B/s" else 8)
    if not rest:
        return per_second, 0.0
    if not (time := TIME.fullmatch(rest[0])):
        raise LaunchRefused(f"network: {rest[0]!r} is no latency. Write 20 µs, 0.5 ms or 1 s.")
    return per_second, positive(time[1], rest[0], or_zero=True) * SECONDS[time[2]]


def positive(digits: str, part: str, *, or_zero: bool = False) -> float:
    """The number in `part`; LaunchRefused for one that is not positive."""
    try:
        number = float(digits)
    except ValueError:
        raise LaunchRefused(f"network: {part!r} has no number that can be read.") from None
    if number > 0 or (or_zero and number == 0):
        return number
    raise LaunchRefused(f"network: {part!r} must be more than zero.")
