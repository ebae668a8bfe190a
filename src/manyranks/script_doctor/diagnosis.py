"""`doctor`: run a reader's script for a few steps on a few CPU ranks, and say what was seen."""

import contextlib
import io
import os
import signal
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from manyranks.errors import HangUndecided, LaunchRefused, Proof, RankFailed, RanksHung
from manyranks.launcher import fork_server
from manyranks.launcher.calls import Call, call_of
from manyranks.launcher.hang_detection import HangLimits
from manyranks.launcher.launch import run_ranks
from manyranks.launcher.limits import usable_cores
from manyranks.network.links import Network
from manyranks.script_doctor.call_rules import compared_calls
from manyranks.script_doctor.comparison import Kind, compare, gradients_of_first_step
from manyranks.script_doctor.explanations import explain
from manyranks.script_doctor.facts import NOTE, WRONG, Facts, Finding, equal, number_in_words
from manyranks.script_doctor.notes import read_notes
from manyranks.script_doctor.observed_worker import Extent, ObservedWorker
from manyranks.script_doctor.one_process_rules import in_order, not_compared
from manyranks.script_doctor.reference_run import ReferenceRun
from manyranks.script_doctor.rules import evaluate_rules

IDLE_S = 20.0  # seconds in which nothing happens until a script counts as hung
REFERENCE_S = 60.0  # seconds for the script on one rank, at most
WIDTH = 96
TOO_SLOW = (
    "The ranks had not finished after {:g} s, and were stopped. If they need longer, as while "
    "torch.compile compiles, give them more time: --timeout."
)
# Else each rank would import its observers, and what they replace.
fork_server.preload(ObservedWorker.__module__, "safetensors.torch")


@dataclass
class DoctorReport:
    """What was seen of a script: `findings`, and what else a reader should know.

    `exit_code` is 1 if a finding is wrong or likely, 2 if the script failed and none is, else 0.
    """

    script: str
    ranks: int
    findings: list[Finding]
    files: list[str]  # that the script wrote, and that were thrown away
    looked_at: list[str]  # and found in order
    not_seen: list[str]
    stated: list[str]  # what only the reader can judge
    steps: int
    ending: str = ""  # the error with which the script ended; empty if it did not
    printed: str = field(default="", repr=False)
    path: str = ""  # of the script; empty for what has no file
    programs: list[str] = field(default_factory=list)  # that the script has started
    ignored: list[str] = field(default_factory=list)  # rules whose findings were left out

    @property
    def exit_code(self) -> int:
        """As linters have it: 0, 1 for findings, 2 if there was nothing to look at."""
        if any(finding.level != NOTE for finding in self.findings):
            return 1
        return 2 if self.ending else 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        findings = [asdict(finding) for finding in self.findings]
        names = (
            *("script", "ranks", "steps", "files", "programs", "looked_at", "not_seen", "stated"),
            *("ending", "ignored"),
        )
        values = {name: getattr(self, name) for name in names}
        return {"version": 1} | values | {"findings": findings}

    def __str__(self) -> str:
        seen = number_in_words(self.steps, "step") + (" was" if self.steps == 1 else " were")
        parts = [f"{self.script} on {self.ranks} CPU ranks: {seen} seen."]
        for finding in self.findings:
            first, *others = map(self._line, finding.lines or (self.script,))
            via = f" (from {', '.join(others[:3])})" if others else ""
            parts.append(f"\n{finding.level}: {finding.rule}, {first}{via}")
            parts += wrapped(f"{finding.fact} {finding.meaning} See {finding.page}.", "    ")
        names, programs = map(first_ones, (self.files, self.programs))
        for title, lines in (
            ("In order", self.looked_at),
            ("For you to judge", self.stated),
            ("Not seen", self.not_seen),
            ("Written to a folder that is gone", [names] if names else []),
            ("It started programs, and what they did is real", [programs] if programs else []),
            ("Left out, as asked", self.ignored),
        ):
            if lines:
                parts += ["", *wrapped(f"{title}: {'; '.join(lines)}".rstrip(".") + ".")]
        if self.ending:
            parts += ["", "How it ended:", self.ending]
        if self.findings:
            rule = self.findings[0].rule
            parts += ["", f"ddp-workbook doctor --explain {rule} says more."]
        return "\n".join(parts)

    def _line(self, place: str) -> str:
        """`line 43` for `train.py:43`, if that is the script."""
        file, _, number = place.rpartition(":")
        return f"line {number}" if file == self.script else place

    __repr__ = __str__


def first_ones(names: list[str]) -> str:
    """The first five."""
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def wrapped(text: str, indent: str = "") -> list[str]:
    """The text in lines."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def doctor(
    script: Callable | str | os.PathLike,
    *words: Any,
    ranks: int = 2,
    batches: int = Extent.batches,
    passes: int = Extent.passes,
    steps: int = Extent.steps,
    seconds: float = Extent.seconds,
    as_if_gpus: bool = True,
    network: str | Network | None = None,
    timeout: float = 120,
    ignore: Sequence[str] = (),
) -> DoctorReport:
    """Run a training script, unmodified, on a few CPU ranks, and say what was seen.

    `words` are its command line. Each pass over a DataLoader ends after `batches`, the script after
    `passes` over one, `steps` of each optimizer, or `seconds` from the first step on, on all ranks
    alike. Then it runs once more on one rank, with the batches of all, and the first steps are
    compared. What it opens for writing, and removes, is redirected to a folder that is thrown away.
    Where there is no GPU, what asks for one computes on the CPU, unless `as_if_gpus` is False.
    After `timeout` seconds the ranks are stopped; what was seen until then is judged. Findings of
    the rules in `ignore` are left out, which the report says.

    Raises LaunchRefused if the script cannot be run at all, and LaunchInterrupted.
    """
    for name, value, least in (
        ("ranks", ranks, 2),
        ("batches", batches, 2),
        ("passes", passes, 1),
        ("steps", steps, 2),
    ):
        if not isinstance(value, int) or value < least:
            raise LaunchRefused(f"{name}={value!r}: the doctor needs {least} or more.")
    for rule in ignore:
        explain(rule)  # raises UnknownRule
    call = call_of(script, words, {}, ranks)
    with observation_folder() as folder:
        extent = Extent(batches, passes, steps, seconds)
        observed = ObservedWorker(call.worker, folder, extent)
        limits = HangLimits(idle=IDLE_S, processor=timeout, patience=timeout, polling=IDLE_S)
        output, ending = io.StringIO(), ""
        hung = killed = stopped = False
        try:
            run_ranks(
                Call(observed, call.args, call.kwargs),
                ranks,
                quiet=True,
                hang_limits=limits,
                output=output,
                network=network,
                as_if_gpus=as_if_gpus,
            )
        except (RankFailed, HangUndecided) as error:
            returncode = getattr(error, "returncode", None)
            stopped = came_to_its_limit(error)
            ending = TOO_SLOW.format(timeout) if stopped else error.explain()
            hung = not stopped and (isinstance(error, RanksHung) or returncode is not None)
            killed = returncode == -signal.SIGKILL
        reference = ReferenceRun(call, folder, ranks, as_if_gpus, min(timeout, REFERENCE_S))
        of_ranks = read_notes(folder / "facts", ranks)
        facts = Facts(
            of_ranks, text_of(call), usable_cores(), hung, killed, stopped, compare(reference)
        )
    if facts.of_any_rank("enough"):
        ending = ""  # a rank was ended by its doctor
    if not any(facts.of_ranks):
        raise LaunchRefused(ending or "The script has not begun.")
    name = Path(call.file or "the worker").name
    report = diagnosis_of(facts, name, ending, output.getvalue())
    report.path = call.file or ""
    found = {finding.rule for finding in report.findings}
    report.ignored = [rule for rule in ignore if rule in found]
    report.findings = [finding for finding in report.findings if finding.rule not in ignore]
    return report


def came_to_its_limit(error: Exception) -> bool:
    """True if the ranks were stopped while they may have been at work: nothing proves a hang."""
    computes = isinstance(error, RanksHung) and error.proof is Proof.PROCESSOR_TIME
    return computes or isinstance(error, HangUndecided)


@contextlib.contextmanager
def observation_folder() -> Iterator[Path]:
    """A folder for what observers write, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="doctor-", ignore_cleanup_errors=True) as name:
        (Path(name) / "facts").mkdir()
        yield Path(name)


def first_gradients(
    script: Callable | str | os.PathLike, *words: Any, ranks: int = 2
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The gradients that the first step of a script uses: of each rank, and of one process.

    The process has the rows of all ranks. Each gradient is flat, of all parameters in a row.
    Raises LaunchRefused with the reason if the two cannot be compared, and what `launch` raises.
    """
    call = call_of(script, words, {}, ranks)
    with observation_folder() as folder:
        run_ranks(
            Call(ObservedWorker(call.worker, folder, Extent()), call.args, call.kwargs),
            ranks,
            quiet=True,
            output=io.StringIO(),
            as_if_gpus=True,
        )
        return gradients_of_first_step(ReferenceRun(call, folder, ranks, True, REFERENCE_S))


def text_of(call: Call) -> str:
    """The source of what is run."""
    if call.script:
        return call.script.text
    return Path(call.file).read_text(encoding="utf-8") if call.file else ""


def diagnosis_of(facts: Facts, script: str, ending: str = "", printed: str = "") -> DoctorReport:
    """The diagnosis that the facts of all ranks allow."""
    findings = evaluate_rules(facts)
    if any(finding.level == WRONG for finding in findings):  # it knows more than the error's text
        ending = "\n".join(s for s in ending.splitlines() if not s.startswith("  look at "))
    files = sorted({fact["path"] for fact in facts.of_any_rank("file")})
    return DoctorReport(
        script,
        facts.ranks,
        findings,
        files,
        passed_checks(facts, findings),
        unreached_parts(facts) + unseen_rest(facts),
        facts_to_judge(facts),
        max(map(len, facts.of_each_rank("step"))),
        ending,
        printed,
        programs=sorted({fact["name"] for fact in facts.of_any_rank("program")}),
    )


def passed_checks(facts: Facts, findings: list[Finding]) -> list[str]:
    """What was looked at without a finding."""
    failed_rules = {finding.rule for finding in findings if finding.level != NOTE}
    steps = [step for _, steps in facts.steps() for step in steps]
    inputs = [
        facts_of_ranks
        for facts_of_ranks in facts.on_all_ranks("forward", trains=True)
        if facts_of_ranks[0]["input"] is not None
    ]
    sentences = in_order(facts.comparison)
    gradients = {"not-synchronised", "past-the-wrapper", "changed-after-ddp"}
    is_whole = all(None not in fact["weights"] for of_ranks in steps for fact in of_ranks)
    parts = "" if is_whole else " of the parameters that each holds whole"
    if steps and equal_in(steps, "gradients") and not failed_rules & gradients:
        count = number_in_words(len(steps), "step")
        sentences.append(f"the ranks used equal gradients{parts} in {count}")
    if steps and equal_in(steps, "weights") and "replicas-differ" not in failed_rules:
        count = number_in_words(len(steps), "step")
        sentences.append(f"their weights{parts} were equal before {count}")
    readers = facts.division.first_readers
    if (
        inputs
        and len(readers) > 1
        and facts.division.stages == 1  # a later stage is called with activations
        and all(len({of[rank]["input"] for rank in readers}) == len(readers) for of in inputs)
    ):
        count = number_in_words(len(inputs), "forward pass")
        sentences.append(f"no two ranks computed with the same batch in {count}")
    if orders_differ(facts):
        sentences.append("no pass repeated the order of a DistributedSampler")
    if facts.of_any_rank("file") and "one-file-by-all-ranks" not in failed_rules:
        sentences.append("no file was written by two ranks")
    unmatched = {"rank-alone-in-a-collective", "unequal-batches", "shapes-differ"}
    calls, all_same = compared_calls(facts)
    if calls and all_same and not failed_rules & unmatched and not facts.hung:
        groups = "of each group " if facts.of_any_rank("group") else ""
        sentences.append(f"the ranks {groups}made the same collective calls, {calls} in all")
    return sentences


def orders_differ(facts: Facts) -> bool:
    """True if a DistributedSampler was told another epoch in each of several passes."""
    epochs: dict[int, list[int]] = {}
    for of_ranks in facts.passes(trained=True):
        sampler = of_ranks[0].get("distributed")
        if sampler and sampler["shuffle"]:
            epochs.setdefault(of_ranks[0]["loader"], []).append(sampler["epoch"])
    several = [of_loader for of_loader in epochs.values() if len(of_loader) > 1]
    return bool(several) and all(len(set(epochs)) == len(epochs) for epochs in several)


def equal_in(steps: list[tuple[dict, ...]], name: str) -> bool:
    """True if this is equal on all ranks in each step."""
    return all(equal([fact[name] for fact in step]) for step in steps)


def unseen_rest(facts: Facts) -> list[str]:
    """Where the doctor itself ended a pass or the script."""
    cuts = [fact for fact in facts.of_one_rank("ended") if fact["cut"]]
    batches = facts.of_one_rank("batch")
    rest = []
    if cuts:
        key = {"loader": cuts[0]["loader"], "pass": cuts[0]["pass"]}
        count = sum(key.items() <= fact.items() for fact in batches)
        rest.append(f"what comes after batch {count} of a pass (--batches), also its last batches")
    if facts.of_any_rank("enough"):
        rest.append(
            "what the script does after the last step that was seen (--steps, --passes, --seconds)"
        )
    return rest


def unreached_parts(facts: Facts) -> list[str]:
    """What a training may have and this run did not reach."""
    reached = {
        "a second pass over the training data": len(facts.passes(trained=True)) > 1,
        "an evaluation over a loader": any(
            facts.trains(fact, rank) is False
            for rank, passes in enumerate(facts.of_each_rank("pass"))
            for fact in passes
        ),
        "a checkpoint being loaded": bool(facts.of_any_rank("load")),
        "a file being written": bool(facts.of_any_rank("file")),
    }
    return (
        on_the_cpu(facts)
        + not_compared(facts.comparison)
        + not_compared_between_ranks(facts)
        + [what for what, is_reached in reached.items() if not is_reached]
    )


def not_compared_between_ranks(facts: Facts) -> list[str]:
    """What cannot be set side by side of a model that is cut, unless one process has the whole."""
    steps = facts.on_all_ranks("step")
    has_parts = bool(steps) and any(None in fact["weights"] for fact in steps[0])
    if facts.comparison.kind is not Kind.NOT_COMPARED or facts.comparison.of_stages:
        return []
    if not has_parts and facts.division.stages == 1:
        return []
    return [
        "the ranks' gradients and weights beside each other: each rank holds a part of the model"
    ]


def on_the_cpu(facts: Facts) -> list[str]:
    """What a CPU in place of GPUs does not show."""
    requests = facts.of_any_rank("asks_for_gpu")
    if not requests:
        return []
    return [
        f"GPUs ({requests[0]['place']} asks for one, and the ranks computed on the CPU): their "
        "times, their memory, and a tensor that is left on the CPU"
    ]


def facts_to_judge(facts: Facts) -> list[str]:
    """Facts that are right or wrong by what the reader intends."""
    sentences = []
    sizes = [
        [f["size"] for f in forwards if f["trains"] and f["size"]]
        for forwards in facts.of_each_rank("forward")
    ]
    readers = facts.division.first_readers
    largest = [max(sizes[rank]) for rank in readers if sizes[rank]]
    # Of a model that is cut, stages get micro-batches, and several ranks one batch.
    is_cut = len(readers) < facts.ranks or facts.sends_parts(only_by_hand=True)
    if largest and not is_cut:
        count = f"{len(largest)} ranks" + (" that train" if len(largest) < facts.ranks else "")
        each = f"{largest[0]} on each rank" if equal(largest) else f"{max(largest)} on one rank"
        sentences.append(
            f"a batch of {each} is one of {sum(largest)} on {count}, and changes with the number "
            "of ranks unless you divide it"
        )
    rates = sorted({rate for fact in facts.of_one_rank("step") for rate in fact["rates"]})
    if rates:
        text = f"{rates[0]:.3g}" + (f" to {rates[-1]:.3g}" if len(rates) > 1 else "")
        sentences.append(f"the learning rate was {text}")
    return sentences
