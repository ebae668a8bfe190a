"""All rules, in the order of causes, and what was in order where none found anything."""

import re
from collections.abc import Callable, Iterator, Sequence

from manyranks.script_doctor import data_rules, gradient_rules, one_process_rules
from manyranks.script_doctor.facts import LEVELS, LIKELY, NOTE, WRONG, Facts, Finding, lines_of

HANGS_PAGE = "09_when_it_hangs"
UNUSED_PARAMETERS = "Expected to have finished reduction"
CONNECTION_ERRORS = re.compile(r"(?i)gloo|connection|socket|timed out|broken pipe|peer")
CACHES = ("/.cache/", "__pycache__", ".pyc", "/.triton/", "torchinductor")

# A cause, and the rules whose findings would only be its symptoms.
SYMPTOMS_OF = {
    "data-sets-differ": {"evaluation-counts-padding"},
    "same-rows": {"equal-dropout", "equal-augmentation", "sampler-differs-by-rank"},
    "equal-worker-seeds": {"equal-augmentation"},
    "past-the-wrapper": {"not-synchronised", "forward-outside-no-sync"},
    "not-synchronised": {"forward-outside-no-sync", "loss-not-divided"},
    "changed-after-ddp": {"unused-parameters", "rank-alone-in-a-collective"},
    "unused-parameters": {"rank-alone-in-a-collective", "not-synchronised"},
    "forward-outside-no-sync": {"accumulation-without-no-sync"},
    "rank-alone-in-a-collective": {"no-step-seen"},
}


def reduction_unfinished(facts: Facts) -> Iterator[Finding]:
    """DDP's error about parameters that got no gradient."""
    for fact in facts.of_any_rank("error"):
        if UNUSED_PARAMETERS not in fact["text"]:
            continue
        flags, wrappers = facts.of_any_rank("flag"), facts.of_any_rank("ddp")
        changed = [f for f in facts.of_any_rank("forward") if f["changed"]]
        if flags and changed:
            yield Finding(
                "changed-after-ddp",
                WRONG,
                "The forward pass raised, and requires_grad changed after DDP was made: "
                f"{', '.join(changed[0]['changed'][:3])}.",
                "DDP waits for the gradients of all parameters that could be trained when it was "
                "made: freeze first, then wrap.",
                lines_of(flags[0], changed[0]),
                gradient_rules.INSIDE_DDP_PAGE,
            )
        else:
            yield Finding(
                "unused-parameters",
                WRONG,
                "The forward pass raised, because the backward pass before it gave some "
                "parameters no gradient.",
                "Use them in the loss, leave them out of the model, or pay for "
                "find_unused_parameters=True.",
                lines_of(fact, *wrappers[:1]),
                gradient_rules.INSIDE_DDP_PAGE,
            )
        return


def wrappers(facts: Facts) -> Iterator[Finding]:
    """What DDP was told when it was made, and need not have been."""
    for wrapper in facts.of_each_rank("ddp")[0]:
        used = facts.of_any_rank("used", ddp=wrapper["ddp"])
        needless = all(fact["number"] == wrapper["trainable"] for fact in used)
        if wrapper["find_unused"] and len(used) > facts.ranks and needless:
            yield Finding(
                "needless-find-unused",
                NOTE,
                f"find_unused_parameters is on, and all {wrapper['trainable']} parameters got a "
                f"gradient in all {len(used)} backward passes.",
                "Each step searches the graph for nothing.",
                lines_of(wrapper),
                gradient_rules.INSIDE_DDP_PAGE,
            )
        if wrapper["norms"]:
            yield Finding(
                "local-batch-norm",
                NOTE,
                f"{len(wrapper['norms'])} BatchNorm layers, such as {wrapper['norms'][0]}, take "
                "their statistics from each rank's own rows.",
                "With few rows a rank that is another model than on one GPU: "
                "SyncBatchNorm.convert_sync_batchnorm takes all ranks' rows.",
                lines_of(wrapper),
                gradient_rules.INSIDE_DDP_PAGE,
            )


def files(facts: Facts) -> Iterator[Finding]:
    """Files that several ranks write, and checkpoints that go to one GPU."""
    by_path: dict[str, dict[int, dict]] = {}
    for rank, facts_of_rank in enumerate(facts.of_each_rank("file")):
        for fact in facts_of_rank:
            if not any(part in fact["path"] for part in CACHES):
                by_path.setdefault(fact["path"], {}).setdefault(rank, fact)
    shared = [(path, of) for path, of in by_path.items() if len(of) > 1]
    for path, writers in shared[:3]:
        fact = next(iter(writers.values()))
        yield Finding(
            "one-file-by-all-ranks",
            WRONG,
            f"{len(writers)} ranks write {path} ({fact['by']}).",
            "They overwrite each other, and a reader may find half a file: write on rank 0 "
            "alone, or a file for each rank.",
            lines_of(fact),
            "08_checkpoint_and_recover",
        )
    loads: dict[str, list[dict]] = {}
    for fact in facts.of_any_rank("load"):
        if fact["to"] in (None, "cuda", "cuda:0"):
            loads.setdefault(fact["path"], []).append(fact)
    for path, of in loads.items():
        if len(of) > 1 and "cuda" in facts.source:
            where = of[0]["to"] or "the device that it was saved from"
            yield Finding(
                "checkpoint-on-one-device",
                LIKELY,
                f"All ranks load {path.rpartition('/')[2]} to {where}.",
                "On GPUs each rank puts a copy onto that one GPU: map_location='cpu', or the "
                "rank's own device.",
                lines_of(of[0]),
                "08_checkpoint_and_recover",
            )
            return


def mismatched_calls(facts: Facts) -> Iterator[Finding]:
    """Ranks whose calls that communicate do not match."""
    errors = facts.of_any_rank("error")
    own = [f for f in errors if not CONNECTION_ERRORS.search(f["text"])]
    if own or facts.of_any_rank("enough") or not (errors or facts.hung):
        return
    calls = [
        [f for f in comms if f["group"] == "default" and f["op"] not in ("send", "recv")]
        for comms in facts.of_each_rank("comm")
    ]
    place = first_mismatch(calls)
    if place is None:
        return
    now = {rank: of[place] for rank, of in enumerate(calls) if place < len(of)}
    lines_of_ranks = [{line for f in of for line in f["lines"][:1]} for of in calls]

    def ranks_without_line(rank: int) -> int:
        """How many others have not called anything from the line where this rank calls."""
        return sum(not lines_of_ranks[o] & set(now[rank]["lines"][:1]) for o in range(facts.ranks))

    rank = max(now, key=lambda rank: (ranks_without_line(rank), -rank))
    fact, others = now.pop(rank), list(now.values())
    meanwhile = "the others make no further call"
    if others:
        meanwhile = f"another calls {others[0]['op']}, {(others[0]['lines'] or ['?'])[0]}"
    where = "in the forward pass, " if fact["by"] == "forward" else ""
    yield Finding(
        "rank-alone-in-a-collective",
        WRONG,
        f"Rank {rank} calls {fact['op']} {where}its call number {place + 1}, while {meanwhile}.",
        "All ranks of a group must make the same calls in the same order: move this one out of "
        "the branch that only some ranks take.",
        lines_of(fact, *others[:1]),
        HANGS_PAGE,
    )


def first_mismatch(calls: list[list[dict]]) -> int | None:
    """The place of the first call that is not the same on all ranks; None if there is none."""
    for place in range(max(map(len, calls))):
        now = [of[place] if place < len(of) else None for of in calls]
        if len({call and (call["op"], call["bytes"], call["dtype"]) for call in now}) > 1:
            return place
    return None


def threads(facts: Facts) -> Iterator[Finding]:
    """More threads than cores."""
    for fact in facts.of_each_rank("threads")[0][-1:]:
        if fact["number"] * facts.ranks > facts.cores and fact["number"] > 1:
            yield Finding(
                "too-many-threads",
                NOTE,
                f"{fact['number']} threads on each of {facts.ranks} ranks; {facts.cores} cores.",
                "Threads that wait for a core make all slower: cores divided by ranks.",
                lines_of(fact),
                "02_further_does_it_pay",
            )


def no_step(facts: Facts) -> Iterator[Finding]:
    """No optimizer took a step."""
    if facts.of_any_rank("step") or facts.of_any_rank("error") or facts.hung:
        return
    backwards, passes = facts.of_any_rank("backward"), facts.of_any_rank("pass")
    empty = [f for f in passes if not facts.of_any_rank("batch", loader=f["loader"])]
    if backwards:
        why = f"{len(facts.of_each_rank('backward')[0])} backward passes and no optimizer.step()"
        lines = lines_of(backwards[-1])
    elif empty:
        why = f"the loader gave no batch in {len(facts.of_each_rank('pass')[0])} passes"
        lines = lines_of(empty[0], key="made") + lines_of(empty[0])
    else:
        why = f"{len(facts.of_each_rank('forward')[0])} calls of a model, no backward pass"
        lines = lines_of(*facts.of_any_rank("forward")[:1])
    yield Finding(
        "no-step-seen",
        LIKELY,
        f"No step was seen: {why}.",
        "Nothing was trained, or the steps come after what was looked at (--batches, --passes).",
        lines,
        gradient_rules.DDP_PAGE,
    )


RULES: Sequence[Callable[[Facts], Iterator[Finding]]] = (
    data_rules.same_rows,
    data_rules.samplers,
    reduction_unfinished,
    gradient_rules.before_sharding,
    gradient_rules.gradients,
    gradient_rules.groups_of_one,
    gradient_rules.buffers,
    gradient_rules.nothing_loaded,
    gradient_rules.schedules,
    gradient_rules.losses,
    gradient_rules.synchronisation,
    data_rules.targets,
    data_rules.evaluation,
    data_rules.draws,
    wrappers,
    files,
    mismatched_calls,
    threads,
    no_step,
)


def evaluate_rules(facts: Facts) -> list[Finding]:
    """The findings of all rules, the worst first; of a cause and its symptoms, the cause."""
    findings = [finding for rule in RULES for finding in rule(facts)]
    hidden = {rule for finding in findings for rule in SYMPTOMS_OF.get(finding.rule, ())}
    findings = [finding for finding in findings if finding.rule not in hidden]
    findings = one_process_rules.with_comparison(findings, facts)
    unique = {(f.rule, f.lines[:1]): f for f in reversed(findings)}
    return sorted(reversed(unique.values()), key=lambda finding: LEVELS.index(finding.level))
