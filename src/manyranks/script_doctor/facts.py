"""The facts of all ranks side by side, and what a rule finds in them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from manyranks.script_doctor.comparison import Comparison, Kind
from manyranks.script_doctor.cut_models import Division, division_of

WRONG, LIKELY, NOTE = "wrong", "likely", "note"
LEVELS = (WRONG, LIKELY, NOTE)
SENDS_PARTS = (
    *("send", "recv", "reduce_scatter", "reduce_scatter_tensor"),
    *("all_to_all", "all_to_all_single"),
)


@dataclass(frozen=True)
class Finding:
    """One thing that was seen, and what it usually means.

    `lines` are `file.py:12`, the one to look at first; `page` teaches it.
    """

    rule: str
    level: str
    fact: str
    meaning: str
    lines: tuple[str, ...]
    page: str


@dataclass
class Facts:
    """What the observers wrote; `of_ranks` has a list of facts for each rank."""

    of_ranks: list[list[dict]]
    source: str = ""  # the script's text
    cores: int = 1
    hung: bool = False
    killed: bool = False  # a rank, by the system or by a person
    stopped: bool = False  # all ranks, at the time limit
    comparison: Comparison = field(default_factory=lambda: Comparison(Kind.NOT_COMPARED))
    cache: dict[str, list[list[dict]]] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """How many ranks there were."""
        return len(self.of_ranks)

    def of_each_rank(self, kind: str) -> list[list[dict]]:
        """The facts of this kind, for each rank."""
        if kind not in self.cache:
            self.cache[kind] = [[f for f in facts if f["kind"] == kind] for facts in self.of_ranks]
        return self.cache[kind]

    def of_any_rank(self, kind: str, **equal: Any) -> list[dict]:
        """The facts of this kind with these values, of all ranks."""
        facts_of_kind = (fact for facts in self.of_each_rank(kind) for fact in facts)
        return [fact for fact in facts_of_kind if all(fact.get(k) == v for k, v in equal.items())]

    def of_one_rank(self, kind: str) -> list[dict]:
        """The facts of this kind of the first rank that has any; rank 0 need not train."""
        return next(filter(None, self.of_each_rank(kind)), [])

    def on_all_ranks(self, kind: str, **equal: Any) -> list[tuple[dict, ...]]:
        """The n-th fact of this kind and these values on all ranks, for each n that all have."""
        of_ranks = [
            [fact for fact in facts if all(fact.get(k) == v for k, v in equal.items())]
            for facts in self.of_each_rank(kind)
        ]
        return list(zip(*of_ranks, strict=False))

    @cached_property
    def division(self) -> Division:
        """Which ranks compute one model together, on the same rows."""
        return division_of(self.of_ranks)

    @property
    def like_one_process(self) -> bool:
        """Whether the gradients of the first steps are those of one process on the same rows."""
        return self.comparison.kind is Kind.EQUAL

    @property
    def optimizers(self) -> list[int]:
        """The numbers of those that made a step."""
        return sorted({fact["optimizer"] for fact in self.of_any_rank("step")})

    def steps(self) -> Iterator[tuple[int, list[tuple[dict, ...]]]]:
        """For each optimizer with parameters that are whole on all ranks: its steps there."""
        for number in self.optimizers:
            steps = self.on_all_ranks("step", optimizer=number)
            if steps and self.comparable(steps[0]):
                yield number, steps

    def comparable(self, step: tuple[dict, ...]) -> bool:
        """True if these are replicas of one model, which are to be equal."""
        names = {tuple(fact["names"]) for fact in step}
        has_whole = all(set(fact["weights"]) - {None} for fact in step)
        groups = {tuple(f["ranks"]) for f in self.of_any_rank("ddp") if f["ddp"] in step[0]["ddp"]}
        alone = groups and any(len(group) < self.ranks for group in groups)
        by_hand = self.sends_parts(only_by_hand=bool(groups) or step[0]["sharded"])
        return len(names) == 1 and has_whole and not alone and not by_hand

    def sends_parts(self, *, only_by_hand: bool) -> bool:
        """True if the script calls what gives each rank another part, as of a sharded model."""
        comms = self.of_any_rank("comm")
        ops = {f["op"] for f in comms if f["by"] == "hand" or not only_by_hand}
        return bool(ops & set(SENDS_PARTS))

    def between(self, rank: int, first: dict, last: dict | None) -> list[dict]:
        """The facts of a rank after `first` and before `last`, or to the end."""
        facts = self.of_ranks[rank]
        begin = next(i for i, fact in enumerate(facts) if fact is first)
        end = next((i for i, fact in enumerate(facts) if fact is last), len(facts))
        return facts[begin + 1 : end]

    def rounds(self, optimizer: int) -> list[list[dict]]:
        """What rank 0 did from each step to the next, without the first one's making."""
        rounds: list[list[dict]] = []
        current: list[dict] = []
        for fact in self.of_ranks[0]:
            if fact["kind"] == "step" and fact["optimizer"] == optimizer:
                rounds.append(current)
                current = []
            else:
                current.append(fact)
        return rounds

    def passes_on_all_ranks(self) -> list[tuple[dict, ...]]:
        """The n-th pass over each loader that all ranks go through, in the order of rank 0.

        A rank may go through loaders of its own in between, as when it evaluates alone.
        """
        of_ranks = [
            {
                (loader, fact["pass"]): fact
                for loader, passes in self.loaders(rank).items()
                for fact in passes
            }
            for rank in range(self.ranks)
        ]
        on_all = [key for key in of_ranks[0] if all(key in passes for passes in of_ranks)]
        aligned = [tuple(passes[key] for passes in of_ranks) for key in on_all]
        return sorted(aligned, key=lambda facts: self.of_each_rank("pass")[0].index(facts[0]))

    def loaders(self, rank: int) -> dict[tuple, list[dict]]:
        """A rank's passes over each loader, which is known by the lines that made it."""
        by_number: dict[int, list[dict]] = {}
        for fact in self.of_each_rank("pass")[rank]:
            by_number.setdefault(fact["loader"], []).append(fact)
        made_on_all = set.intersection(
            *({tuple(fact["made"]) for fact in facts} for facts in self.of_each_rank("pass"))
        )
        named: dict[tuple, list[dict]] = {}
        for passes in by_number.values():
            made = tuple(passes[0]["made"])
            line = made if made in made_on_all else ()  # made in a branch of this rank
            ordinal = sum(key[0] == line for key in named)
            named[(line, ordinal)] = passes
        return named

    def passes(self, trained: bool) -> list[tuple[dict, ...]]:
        """Passes over loaders on all ranks, in which a model was trained, or was not."""
        return [
            of_ranks
            for of_ranks in self.passes_on_all_ranks()
            if self.trains(of_ranks[0]) is trained
        ]

    def trains(self, pass_fact: dict, rank: int = 0) -> bool | None:
        """Whether forward passes with gradients follow; None if none follows at all."""
        facts = self.of_ranks[rank]
        begin = next(i for i, fact in enumerate(facts) if fact is pass_fact)
        has_batch = False
        for fact in facts[begin + 1 :]:
            if fact["kind"] == "forward":
                return fact["trains"]
            has_batch |= fact["kind"] == "batch" and fact["loader"] == pass_fact["loader"]
            if fact["kind"] == "pass" and (has_batch or fact["loader"] == pass_fact["loader"]):
                return None  # a look at one batch; two loaders at once begin before they give
        return None


def calls_by_hand(facts: list[dict], what: str) -> list[dict]:
    """The calls among these facts by which the script itself sends a gradient or a parameter."""
    return [f for f in facts if f["kind"] == "comm" and f["by"] == "hand" and f["of"] == what]


def accumulated(facts_of_step: list[dict]) -> list[dict]:
    """Of what a rank did for a step, that from which the step's gradients come.

    A backward pass that found no gradient begins them anew: what was computed before was cleared.
    """
    begin = 0
    for place, fact in enumerate(facts_of_step):
        if fact["kind"] == "backward" and not fact["adds"]:
            backwards = (i for i in range(place) if facts_of_step[i]["kind"] == "backward")
            begin = max(backwards, default=-1) + 1
    return facts_of_step[begin:]


def lines_of(*facts: dict, key: str = "lines") -> tuple[str, ...]:
    """The lines of these facts, each once."""
    return tuple(dict.fromkeys(line for fact in facts for line in fact.get(key, [])))


def equal(values: list) -> bool:
    """True if all are the same."""
    return all(value == values[0] for value in values)


def ranks_in_words(ranks: list[int]) -> str:
    """`rank 2`, `ranks 0 and 2`, `ranks 0, 1 and 2`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def times_in_words(number: int) -> str:
    """`once`, `3 times`."""
    return "once" if number == 1 else f"{number} times"


def number_in_words(number: int, what: str) -> str:
    """`1 step`, `16 steps`; `passes` for more than one pass."""
    ending = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number} {what}{ending}"


def share_in_words(number: int, of: int, what: str) -> str:
    """`12 of 16 steps`, `all 16 steps`."""
    return f"all {of} {what}" if number == of else f"{number} of {of} {what}"
