"""All rules, in the order of causes, and what was in order where none found anything."""

import os
import re
from collections.abc import Callable, Iterator, Sequence

from manyranks.script_doctor import (
    call_rules,
    data_rules,
    gradient_rules,
    one_process_rules,
    report_rules,
    step_rules,
)
from manyranks.script_doctor.facts import (
    LEVELS,
    LIKELY,
    NOTE,
    WRONG,
    Facts,
    Finding,
    equal,
    lines_of,
)

UNUSED_PARAMETERS = "Expected to have finished reduction"
NUMBERS = re.compile(r"[0-9a-f]{4,}|\d+")  # also of bits at random
CACHES = ("/.cache/", "__pycache__", ".pyc", "/.triton/", "torchinductor")

# A cause, and the rules whose findings would only be its symptoms.
SYMPTOMS_OF = {
    "data-sets-differ": {"evaluation-counts-padding"},
    "sampler-differs-by-rank": {"equal-dropout", "equal-augmentation", "shares-overlap"},
    "result-of-one-share": {"evaluation-counts-padding"},  # nothing is counted together
    "same-rows": {
        *("equal-dropout", "equal-augmentation"),
        *("sampler-differs-by-rank", "data-sets-differ", "shares-overlap"),
    },
    "equal-worker-seeds": {"equal-augmentation"},
    "past-the-wrapper": {"not-synchronised", "forward-outside-no-sync"},
    "not-synchronised": {"forward-outside-no-sync", "loss-not-divided"},
    "changed-after-ddp": {"unused-parameters", "rank-alone-in-a-collective", "not-synchronised"},
    "unused-parameters": {"rank-alone-in-a-collective", "not-synchronised"},
    "forward-outside-no-sync": {"accumulation-without-no-sync"},
    "rank-alone-in-a-collective": {"no-step-seen"},
    "graph-cut": {"unused-parameters", "needless-find-unused", "not-synchronised"},
    "step-on-some-ranks": {"not-synchronised", "replicas-differ", "loss-not-divided"},
    "unequal-batches": {"rank-alone-in-a-collective", "shapes-differ", "no-step-seen"},
    "new-group-differs": {"rank-alone-in-a-collective", "shapes-differ", "no-step-seen"},
    "shapes-differ": {"no-step-seen"},
}


def reduction_unfinished(facts: Facts) -> Iterator[Finding]:
    """DDP's error about parameters that got no gradient."""
    for fact in facts.of_any_rank("error"):
        if "static_graph set to True" in fact["text"]:
            yield Finding(
                "changed-after-ddp",
                WRONG,
                "DDP was made with static_graph=True, and raised because a backward pass used "
                "other parameters than the first one.",
                "static_graph promises the same parameters in every step: leave it out, and pass "
                "find_unused_parameters=True if a step does not use all of them.",
                lines_of(fact, *facts.of_any_rank("ddp")[:1]),
                gradient_rules.INSIDE_DDP_PAGE,
            )
            return
        if UNUSED_PARAMETERS not in fact["text"]:
            continue
        flags, wrappers = facts.of_any_rank("flag"), facts.of_any_rank("ddp")
        new = [f for f in facts.of_any_rank("forward") if f["new"]]
        if new:
            yield gradient_rules.new_parameters(facts, "The forward pass raised", new[0])
            return
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
    if "cuda" in facts.source:
        yield from loads_to_one_device(facts)


def run_names(facts: Facts) -> Iterator[Finding]:
    """Files or folders of all ranks, named in one line by numbers that are not the rank's."""
    by_line: list[dict[str, str]] = [
        {f["lines"][0]: f["path"] for f in of_rank if is_named_by_script(f)}
        for of_rank in facts.of_ranks
    ]
    for line, path in by_line[0].items():
        paths = [of_rank.get(line, "") for of_rank in by_line]
        numbers = [NUMBERS.findall(of_rank) for of_rank in paths]
        if not equal([NUMBERS.split(of_rank) for of_rank in paths]) or len(set(paths)) == 1:
            continue
        other = [part for part in zip(*numbers, strict=True) if not equal(list(part))]
        if not any(counts_up(part) for part in other):
            yield Finding(
                "run-named-by-each-rank",
                NOTE,
                f"In this line rank 0 makes {os.path.basename(path)}, and rank 1 "
                f"{os.path.basename(paths[1])}.",
                "Each rank has a name of its own, as from a clock, so one run leaves several: let "
                "rank 0 choose the name and broadcast it, or write alone.",
                (line,),
                "08_checkpoint_and_recover",
            )
            return


def is_named_by_script(fact: dict) -> bool:
    """Whether a fact tells of a new file or folder that is not in the folder for temporary ones."""
    return fact["kind"] in ("file", "folder") and fact["path"][:1] == "/" and bool(fact["lines"])


def counts_up(numbers: Sequence[str]) -> bool:
    """Whether these numbers of the ranks differ as the ranks do."""
    first = int(numbers[0], 16)
    return all(int(number, 16) == first + rank for rank, number in enumerate(numbers))


def loads_to_one_device(facts: Facts) -> Iterator[Finding]:
    """Files whose tensors several ranks put onto one GPU."""
    by_path: dict[str, dict[int, dict]] = {}
    for rank, loads in enumerate(facts.of_each_rank("load")):
        for fact in loads:
            # After set_device, "cuda" is the rank's own.
            is_own = fact["to"] == "cuda" and "set_device" in facts.source
            if fact["to"] in (None, "cuda", "cuda:0") and not is_own:
                by_path.setdefault(fact["path"], {}).setdefault(rank, fact)
    for path, of_ranks in by_path.items():
        if len(of_ranks) > 1:
            fact = next(iter(of_ranks.values()))
            where = fact["to"] or "the device that it was saved from"
            yield Finding(
                "checkpoint-on-one-device",
                LIKELY,
                f"{len(of_ranks)} ranks load {path.rpartition('/')[2]} to {where}.",
                "On GPUs each rank puts a copy onto that one GPU: load to 'cpu', or to the rank's "
                "own device.",
                lines_of(fact),
                "08_checkpoint_and_recover",
            )
            return


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
    if facts.of_any_rank("step") or facts.of_any_rank("error") or facts.hung or facts.stopped:
        return
    before = {f["model"]: f["weights"] for f in facts.of_each_rank("start")[0]}
    if any(before.get(f["model"]) != f["weights"] for f in facts.of_each_rank("end")[0]):
        return  # something else than an optimizer of PyTorch trains
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
    data_rules.shares,
    reduction_unfinished,
    gradient_rules.before_sharding,
    gradient_rules.gradients,
    step_rules.steps,
    step_rules.decisions_of_one_rank,
    step_rules.other_parameters,
    step_rules.nothing_sent,
    step_rules.cut_graphs,
    gradient_rules.buffers,
    gradient_rules.attributes,
    gradient_rules.overwritten_buffers,
    data_rules.orders_of_workers,
    call_rules.names_in_other_order,
    gradient_rules.nothing_loaded,
    gradient_rules.schedules,
    gradient_rules.cleared_gradients,
    gradient_rules.left_out_parameters,
    gradient_rules.losses,
    gradient_rules.synchronisation,
    data_rules.targets,
    data_rules.evaluation,
    data_rules.draws,
    wrappers,
    files,
    run_names,
    call_rules.batches,
    call_rules.groups,
    call_rules.collectives,
    call_rules.removed_files,
    report_rules.evaluations,
    report_rules.own_losses,
    report_rules.sums_of_ranks,
    report_rules.equal_lines,
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
