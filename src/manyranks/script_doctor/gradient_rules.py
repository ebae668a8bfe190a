"""What gradients, weights and steps tell: is a gradient the mean, are replicas equal."""

from collections.abc import Iterator

from manyranks.script_doctor.facts import (
    LIKELY,
    NOTE,
    WRONG,
    Facts,
    Finding,
    accumulated,
    calls_by_hand,
    equal,
    lines_of,
    number_in_words,
    share_in_words,
)

DDP_PAGE, INSIDE_DDP_PAGE = "02_distributed_data_parallel", "02_further_inside_ddp"
TOLERANCE = 0.02  # of a factor
ROUNDING = 1e-5  # of a norm: what float32 may lose over some steps


def gradients(facts: Facts) -> Iterator[Finding]:
    """Gradients that differ between ranks when the optimizer uses them."""
    if facts.of_any_rank("join"):
        return
    for number, steps in facts.steps():
        differing = [step for step in steps if not equal([f["gradients"] for f in step])]
        if None in steps[0][0]["weights"]:
            yield from whole_parameters(facts, number, steps, differing)
        elif differing:
            yield from causes_of_difference(facts, number, steps, differing)
        else:
            yield from replicas(facts, number, steps)


def whole_parameters(facts: Facts, number: int, steps: list, differing: list) -> Iterator[Finding]:
    """Parameters that each rank holds whole, beside others of which it holds a part."""
    if not differing or not equal([f["weights"] for f in steps[0]]):
        yield from replicas(facts, number, steps)
        return
    first = differing[0]
    others = [
        name or f"parameter {place + 1}"
        for place, name in enumerate(first[0]["names"])
        if not equal([f["gradients"][place] for f in first])
    ]
    yield Finding(
        "not-synchronised",
        WRONG,
        f"In {share_in_words(len(differing), len(steps), 'steps')} the gradients of "
        f"{number_in_words(len(others), 'parameter')} that each rank holds whole, such as "
        f"{others[0]}, differ between the ranks.",
        "Such a parameter must have one gradient on all ranks: if they share the model's layers, "
        "give them the same input, or add up what each has of a part of it; if not, average.",
        lines_of(first[0]),
        "11_model_parallel",
    )


def causes_of_difference(
    facts: Facts, number: int, steps: list, differing: list
) -> Iterator[Finding]:
    """Why the gradients of one optimizer differ."""
    first = differing[0][0]
    fact = (
        f"In {share_in_words(len(differing), len(steps), 'steps')} the gradients that "
        "optimizer.step() used differ between the ranks"
    )
    wrappers = first["ddp"]
    past = [f for f in facts.of_each_rank("forward")[0] if f["past"] is not None and f["trains"]]
    flags = [f for f in facts.of_any_rank("flag") if f["ddp"] in wrappers]
    changed = [f for f in facts.of_any_rank("forward") if f["ddp"] in wrappers and f["changed"]]
    new = [f for f in facts.of_any_rank("forward") if f["ddp"] in wrappers and f["new"]]
    if past:
        yield Finding(
            "past-the-wrapper",
            WRONG,
            f"{fact}; {past[0]['type']} was called {len(past)} times past its DDP wrapper.",
            "Only a forward pass through the DDP model lets its backward pass average gradients.",
            lines_of(past[0]),
            DDP_PAGE,
        )
    elif new:
        yield new_parameters(facts, fact, new[0])
    elif changed:
        names = ", ".join(changed[0]["changed"][:3])
        yield Finding(
            "changed-after-ddp",
            WRONG,
            f"{fact}; requires_grad changed after DDP was made: {names}.",
            "DDP averages the parameters that could be trained when it was made: unfreeze first.",
            lines_of(
                *(flags[:1] or facts.of_any_rank("ddp", ddp=changed[0]["ddp"])[:1]), changed[0]
            ),
            INSIDE_DDP_PAGE,
        )
    elif all(map(left_equal, differing)):
        clips = [clips[0] for clips in facts.of_each_rank("clip") if clips]
        some = " (clip_grad_norm_ was called on some of them)" if len(clips) < facts.ranks else ""
        yield Finding(
            "changed-after-backward",
            WRONG,
            f"{fact}{some if clips else ''}, and backward had left equal ones on all of them.",
            "Something changes them between backward and the step, on some ranks alone or by "
            "numbers of their own: clip, scale or mask them alike on all ranks.",
            lines_of(*clips[:1], first),
            DDP_PAGE,
        )
    elif wrappers or not averages_weights(facts):
        silent = [
            f
            for f in facts.of_each_rank("forward")[0]
            if f["ddp"] in wrappers and f["sync"] is False
        ]
        yield Finding(
            "not-synchronised",
            WRONG,
            f"{fact}.",
            "Nothing averages them in time: all that is trained belongs into DDP, which decides in "
            "the forward pass of the wrapper whether the backward pass averages.",
            lines_of(*silent[-1:], first),
            INSIDE_DDP_PAGE if wrappers else DDP_PAGE,
        )


def left_equal(step: tuple[dict, ...]) -> bool:
    """True if backward had left equal gradients where those of this step differ."""
    places = range(len(step[0]["gradients"]))
    differing = [n for n in places if not equal([fact["gradients"][n] for fact in step])]
    left = [[fact["left"][n] for fact in step] for n in differing]
    return all(None not in of_ranks and equal(of_ranks) for of_ranks in left)


def new_parameters(facts: Facts, fact: str, forward: dict) -> Finding:
    """Parameters that DDP never heard of."""
    return Finding(
        "changed-after-ddp",
        WRONG,
        f"{fact}; the model got parameters after DDP was made: {', '.join(forward['new'][:3])}.",
        "DDP averages the parameters that the model had when it was wrapped: change it first, "
        "then wrap.",
        lines_of(*facts.of_any_rank("ddp", ddp=forward["ddp"])[:1], forward),
        INSIDE_DDP_PAGE,
    )


def nothing_loaded(facts: Facts) -> Iterator[Finding]:
    """load_state_dict that found none of the model's tensors."""
    for fact in facts.of_each_rank("loaded")[0]:
        if fact["of"] and fact["missing"] >= fact["of"]:
            yield Finding(
                "nothing-loaded",
                WRONG,
                f"load_state_dict loaded none of the model's {fact['of']} tensors.",
                "strict=False hides it; the names differ, often by a wrapper's prefix: module.",
                lines_of(fact),
                "08_checkpoint_and_recover",
            )
            return


def schedules(facts: Facts) -> Iterator[Finding]:
    """Schedules whose length counts other steps than each rank makes."""
    cut = facts.of_any_rank("enough") or any(f["cut"] for f in facts.of_any_rank("ended"))
    is_whole = not cut and all(facts.of_each_rank("finished"))
    rounding = facts.ranks * max(1, len(facts.passes(trained=True)))  # a batch of each pass
    for fact in facts.of_one_rank("schedule"):
        length, taken = fact["length"] if is_whole else None, fact["taken"]
        is_long = taken * (facts.ranks - 1) > 2 * rounding  # else all may be rounding
        if length and is_long and abs(length - taken * facts.ranks) <= rounding:
            yield Finding(
                "schedule-of-all-ranks",
                LIKELY,
                f"The schedule is {length} steps long, about {facts.ranks} times the {taken} that "
                f"each rank made: it was left at a learning rate of {fact['rates'][0]:.3g}.",
                f"{facts.ranks} ranks read as many rows in 1/{facts.ranks} of the steps: take "
                "their number from the loader that has the sampler.",
                tuple(fact["lines"]),
                DDP_PAGE,
            )
        calls = [
            [f for f in facts_of_step if f["kind"] == "scheduled" and f["of"] == fact["of"]]
            for facts_of_step in facts.rounds(fact["optimizer"])[1:]
        ]
        once_a_rank = len(calls) > 1 and all(len(of_step) == facts.ranks for of_step in calls)
        if once_a_rank and not (length and length + rounding >= taken):
            yield Finding(
                "schedule-steps-too-often",
                LIKELY if length else NOTE,
                f"scheduler.step() was called {facts.ranks} times for each step of the optimizer, "
                "as many as there are ranks"
                + (f", and the schedule is {length} steps long." if length else "."),
                f"If its length counts steps of the optimizer, it ends after 1/{facts.ranks} of "
                "them: step it once.",
                lines_of(calls[0][0]),
                DDP_PAGE,
            )


def cleared_gradients(facts: Facts) -> Iterator[Finding]:
    """Micro-batches whose gradients were cleared before a step used them.

    Where the weights were moved in between, as SAM does, that was meant.
    """
    if len(facts.optimizers) != 1:
        return
    rounds = facts.rounds(*facts.optimizers)
    lost = []
    for facts_of_step in rounds:
        places = [i for i, fact in enumerate(facts_of_step) if fact["kind"] == "backward"]
        backwards = [facts_of_step[place] for place in places]
        kept = [f for f in accumulated(facts_of_step) if f["kind"] == "backward"]
        if len(kept) == len(backwards):
            continue
        moved = any(f["kind"] == "write" for f in facts_of_step[places[0] : places[-1]])
        if not moved and equal([(f["lines"], f["weights"]) for f in backwards]):
            lost.append((backwards, len(kept)))
    if len(lost) < 2 or len(lost) <= len(rounds) / 2:
        return
    backwards, kept_count = lost[0]
    divided = len(backwards) > 1 and near(backwards[0]["divisor"], len(backwards))
    of_each = f", each of a loss divided by {len(backwards)}" if divided else ""
    yield Finding(
        "cleared-before-the-step",
        LIKELY if divided else NOTE,
        f"Before {share_in_words(len(lost), len(rounds), 'steps')} this line made "
        f"{len(backwards)} backward passes{of_each}, and the step used the gradients of the last "
        f"{kept_count}: the others had been cleared.",
        "If they are micro-batches of one step, clear the gradients after the step alone.",
        lines_of(backwards[-1]),
        "02_further_the_batch",
    )


def left_out_parameters(facts: Facts) -> Iterator[Finding]:
    """Parameters that came after the optimizer, and that no optimizer moves."""
    steps = [step for step in facts.of_one_rank("step") if step["left_out"]]
    if len(steps) < 2:
        return
    first, last = steps[0]["left_out"], steps[-1]["left_out"]
    still = [name for name in first if name in last and first[name] == last[name]]
    if still:
        yield Finding(
            "made-after-the-optimizer",
            LIKELY,
            f"{number_in_words(len(still), 'parameter')}, such as {still[0]}, got gradients in "
            f"{len(steps)} steps and did not change: put into the model after an optimizer was "
            "made, and into no optimizer.",
            "An optimizer steps the parameters that it was given: change the model first, then "
            "make it, or call add_param_group.",
            (*first[still[0]][1], *steps[0]["made"]),
            DDP_PAGE,
        )


def averages_weights(facts: Facts) -> bool:
    """True if the script averages weights by itself, as local SGD does."""
    first = next(iter(facts.of_each_rank("step")[0]), None)
    return first is not None and bool(calls_by_hand(facts.between(0, first, None), "parameter"))


def replicas(facts: Facts, number: int, steps: list) -> Iterator[Finding]:
    """Weights that differ although the gradients are equal."""
    last = facts.on_all_ranks("rates", optimizer=number)
    unequal = [step for step in steps if not equal([f["rates"] for f in step])]
    if unequal or (last and not equal([f["rates"] for f in last[0]])):
        example = unequal[0] if unequal else last[0]
        rates = " and ".join(f"{f['rates'][0]:.3g}" for f in example[:2])
        yield Finding(
            "learning-rate-differs",
            WRONG,
            f"The learning rate differs between the ranks: {rates}"
            + (f", in {share_in_words(len(unequal), len(steps), 'steps')}." if unequal else "."),
            "The replicas drift apart: all ranks must step their schedule alike, by one value.",
            lines_of(steps[-1][0]),
            DDP_PAGE,
        )
        return
    drifting = [step for step in steps if not equal([f["weights"] for f in step])]
    if not drifting:
        return
    writes = facts.of_any_rank("write")
    if all(near_weights(step) for step in drifting):
        yield Finding(
            "replicas-differ",
            NOTE,
            f"In {share_in_words(len(drifting), len(steps), 'steps')} the weights differ between "
            "the ranks, by as little as rounding makes.",
            "Something outside the optimizer computes them in another way on each rank, as when "
            "weights are moved and moved back: store them and copy them back to stay equal."
            if writes
            else "The ranks compute them in another way: the difference may grow.",
            lines_of(*writes[:1], drifting[0][0]),
            DDP_PAGE,
        )
        return
    is_wrapped = any(len(f["ranks"]) == facts.ranks for f in facts.of_each_rank("ddp")[0])
    if drifting[0] is steps[0] and not (steps[0][0]["ddp"] and is_wrapped):
        yield Finding(
            "replicas-differ",
            WRONG,
            "The weights differ between the ranks before the first step.",
            "Equal gradients keep the difference: start equal, by one seed or a broadcast from "
            "rank 0, which DDP does when it wraps the model.",
            lines_of(drifting[0][0], key="made") + lines_of(drifting[0][0]),
            DDP_PAGE,
        )
        return
    yield Finding(
        "replicas-differ",
        WRONG,
        f"In {share_in_words(len(drifting), len(steps), 'steps')} the weights differ between the "
        "ranks, although the gradients are equal"
        + (": something outside the optimizer writes to them." if writes else "."),
        "What changes weights must change them alike on all ranks: the same numbers, or a "
        "broadcast.",
        lines_of(*writes[:1], drifting[0][0]),
        DDP_PAGE,
    )


def near_weights(step: tuple[dict, ...]) -> bool:
    """True if the weights of all ranks have the same norms and sums, but for rounding."""
    for weights in zip(*(fact["sizes"] for fact in step), strict=True):
        if None in weights:
            if not equal(list(weights)):
                return False
            continue
        norm = max(of_rank[0] for of_rank in weights)
        for values in zip(*weights, strict=True):
            if not max(values) - min(values) <= ROUNDING * norm:  # nan is no rounding
                return False
    return True


def buffers(facts: Facts) -> Iterator[Finding]:
    """Buffers that differ at the end between replicas, and that nothing broadcasts."""
    alone = {f["ddp"]: f for f in facts.of_any_rank("ddp") if not f["buffers"]}
    for ends in facts.on_all_ranks("end"):
        differing = [
            name for name in ends[0]["buffers"] if not equal([f["buffers"].get(name) for f in ends])
        ]
        trained = [f for f in facts.of_any_rank("forward", model=ends[0]["model"]) if f["trains"]]
        are_replicas = trained and equal([f["weights"] for f in ends])
        if differing and ends[0]["ddp"] is None and are_replicas:
            yield Finding(
                "replicas-differ",
                NOTE,
                f"At the end the weights of {trained[0]['type']} are equal on all ranks, and "
                f"{len(differing)} of its buffers differ, such as {differing[0]}.",
                "No DDP broadcasts them: what a rank keeps of its own rows there makes it evaluate "
                "and save another model. all_reduce what goes into it, if that is not meant.",
                lines_of(trained[0]),
                INSIDE_DDP_PAGE,
            )
        elif differing and ends[0]["ddp"] in alone:
            yield Finding(
                "replicas-differ",
                LIKELY,
                f"At the end {len(differing)} buffers differ between the ranks, such as "
                f"{differing[0]}; DDP was told not to broadcast them.",
                "Each rank evaluates and saves another model: leave broadcast_buffers on, or "
                "average them before.",
                lines_of(alone[ends[0]["ddp"]]),
                INSIDE_DDP_PAGE,
            )


def attributes(facts: Facts) -> Iterator[Finding]:
    """What a model keeps in plain tensors: equal on all ranks at first, and not at the end."""
    for ends in facts.on_all_ranks("end"):
        starts = [
            [f for f in of if f["model"] == end["model"]][:1]
            for of, end in zip(facts.of_each_rank("start"), ends, strict=True)
        ]
        if not all(starts) or not equal([f["weights"] for f in ends]):
            continue
        differing = [
            name
            for name in starts[0][0]["attributes"]
            if equal([start["attributes"].get(name) for (start,) in starts])
            and all(name in f["attributes"] for f in ends)
            and not equal([f["attributes"][name] for f in ends])
        ]
        trained = [f for f in facts.of_any_rank("forward", model=ends[0]["model"]) if f["trains"]]
        if differing and trained:
            yield Finding(
                "replicas-differ",
                NOTE,
                f"The weights of {trained[0]['type']} are equal on all ranks at the end, and "
                f"{number_in_words(len(differing), 'tensor')} that it keeps beside them and its "
                f"buffers, such as {differing[0]}, came to differ.",
                "If it computes with it, as with a mean of the rows that it has seen, the ranks "
                "compute with models of their own, and no checkpoint holds it: make it a buffer, "
                "and all_reduce what goes into it.",
                lines_of(trained[0]),
                INSIDE_DDP_PAGE,
            )


def overwritten_buffers(facts: Facts) -> Iterator[Finding]:
    """Buffers that each rank's rows change, and that DDP replaces by rank 0's."""
    wrappers = [f for f in facts.of_each_rank("ddp")[0] if f["buffers"]]
    for _, steps in facts.steps():
        names = [
            name
            for name in steps[0][0]["buffers"]
            if all(not equal([f["buffers"].get(name) for f in step]) for step in steps)
        ]
        if wrappers and names and len(steps) > 1:
            yield Finding(
                "buffers-of-rank-0",
                NOTE,
                f"Before each of {len(steps)} steps {len(names)} buffers differ between the ranks, "
                f"such as {names[0]}, and DDP then replaces them by those of rank 0.",
                "What the rows of other ranks add to such a buffer is lost: all_reduce what goes "
                "into it, if it should follow all rows.",
                lines_of(wrappers[0]),
                INSIDE_DDP_PAGE,
            )
            return


def before_sharding(facts: Facts) -> Iterator[Finding]:
    """An optimizer with parameters that no model computes with."""
    for number in facts.optimizers:
        steps = facts.on_all_ranks("step", optimizer=number)
        unused = [
            s for s in steps if not any(s[0]["names"]) and s[0]["empty"] == len(s[0]["names"])
        ]
        if unused and len(unused) == len(steps):
            sharded = unused[0][0]["sharded"]
            yield Finding(
                "optimizer-before-sharding",
                WRONG,
                f"None of the optimizer's {len(unused[0][0]['names'])} parameters gets a gradient, "
                "and none is a parameter of the model that was called.",
                "fully_shard puts others in their place, and so does a forward pass before the "
                "optimizer was made: make it after the one and before the other."
                if sharded
                else "Something replaced them after the optimizer was made: make it last.",
                lines_of(unused[0][0], key="made"),
                "06_fully_sharded",
            )


def losses(facts: Facts) -> Iterator[Finding]:
    """A loss of micro-batches that is not divided by their number."""
    if len(facts.optimizers) != 1 or not facts.of_any_rank("ddp"):
        return
    rounds = [
        [f for f in accumulated(facts_of_step) if f["kind"] == "backward"]
        for facts_of_step in facts.rounds(*facts.optimizers)
    ]
    rounds = [facts_of_step for facts_of_step in rounds[1:] or rounds if facts_of_step]
    if not rounds:
        return
    backwards = rounds[len(rounds) // 2]
    micro, last = len(backwards), backwards[-1]
    accumulates = micro > 1 and (
        len({tuple(f["lines"]) for f in backwards}) < micro
        or any(flag is False for f in backwards for flag in f["sync"].values())
    )
    if accumulates and last["means"] and near(last["divisor"], 1):
        yield Finding(
            "loss-not-divided",
            LIKELY,
            f"{micro} micro-batches are accumulated before each step, and the mean loss of none "
            "is divided.",
            f"The gradient is {micro} times that of one batch: divide each loss by {micro}.",
            lines_of(*reversed(backwards)),
            "02_further_the_batch",
        )


def near(value: float, divisor: float) -> bool:
    """True if two factors are the same but for rounding."""
    return abs(value - divisor) < TOLERANCE * divisor


def synchronisation(facts: Facts) -> Iterator[Finding]:
    """What costs more messages than it must."""
    if facts.of_any_rank("join"):  # a rank that has ended answers the others' calls by itself
        return
    for number in facts.optimizers:
        steps = facts.on_all_ranks("step", optimizer=number)
        if not steps:
            continue
        rounds = [accumulated(facts_of_step) for facts_of_step in facts.rounds(number)[1:]]
        rounds = [r for r in rounds if any(f["kind"] == "backward" for f in r)]
        for ddp in steps[0][0]["ddp"]:
            yield from of_accumulation(rounds, ddp)
        if steps[0][0]["ddp"]:
            yield from repeated_averaging(rounds, steps)
        elif len(facts.optimizers) == 1:  # else the backward passes may be of different models
            yield from each_micro_batch(rounds)
        yield from redundant_weights(facts, number, rounds)


def of_accumulation(rounds: list, ddp: int) -> Iterator[Finding]:
    """Micro-batches that send though the step comes later."""
    outside, early, micro = [], [], 0
    for facts_of_step in rounds:
        forwards = [
            f for f in facts_of_step if f["kind"] == "forward" and f["ddp"] == ddp and f["trains"]
        ]
        backwards = [f for f in facts_of_step if f["kind"] == "backward"]
        micro = max(micro, len(backwards))
        if len(forwards) != len(backwards):
            continue
        pairs = [
            (f, b, b["sync"].get(str(ddp)))
            for f, b in zip(forwards, backwards, strict=True)
            if f["sync"]
        ]
        outside += [f for f, _, sync in pairs if sync is False]
        if len({tuple(b["lines"]) for b in backwards}) < len(backwards):
            early += [b for _, b, sync in pairs if sync and b is not backwards[-1]]
    if outside:
        yield Finding(
            "forward-outside-no-sync",
            LIKELY,
            f"In {len(outside)} micro-batches no_sync was on in the backward pass and off in the "
            "forward pass: all of them sent their gradients.",
            "DDP decides in the forward pass: put it into no_sync as well.",
            lines_of(outside[0]),
            INSIDE_DDP_PAGE,
        )
    elif early:
        yield Finding(
            "accumulation-without-no-sync",
            NOTE,
            f"{micro} micro-batches a step, and each sends all gradients.",
            "Once would do: put all but the last into no_sync, forward pass and all.",
            lines_of(early[0]),
            INSIDE_DDP_PAGE,
        )


def repeated_averaging(rounds: list, steps: list) -> Iterator[Finding]:
    """Gradients that DDP has averaged and that the script sends again."""
    calls = [f for facts_of_step in rounds for f in calls_by_hand(facts_of_step, "gradient")]
    by_ddp = any(
        f["by"] == "backward"
        for facts_of_step in rounds
        for f in facts_of_step
        if f["kind"] == "comm"
    )
    if calls and by_ddp and len(calls) >= len(rounds):
        yield Finding(
            "synchronised-twice",
            LIKELY,
            f"DDP averages the gradients in the backward pass, and the script sends them again: "
            f"{len(calls) / len(rounds):.0f} calls of {calls[0]['op']} a step.",
            "The second time changes nothing if it takes the mean, and multiplies by the number "
            "of ranks if it takes the sum: remove it.",
            lines_of(calls[0]),
            DDP_PAGE,
        )


def each_micro_batch(rounds: list) -> Iterator[Finding]:
    """Gradients averaged by hand after each backward pass of several."""
    for facts_of_step in rounds:
        backwards = [i for i, f in enumerate(facts_of_step) if f["kind"] == "backward"]
        early = calls_by_hand(facts_of_step[: backwards[-1]], "gradient") if backwards else []
        if len(backwards) > 1 and early:
            yield Finding(
                "sends-more-than-needed",
                LIKELY,
                f"The gradients are sent after each of {len(backwards)} micro-batches of a step.",
                "They add up locally: send them once, before the step.",
                lines_of(early[0]),
                "02_further_the_batch",
            )
            return


def redundant_weights(facts: Facts, number: int, rounds: list) -> Iterator[Finding]:
    """Weights that are sent after a step though they are equal."""
    after_steps = facts.on_all_ranks("stepped", optimizer=number)
    if not after_steps or not all(
        equal([f["weights"] for f in facts_of_step]) for facts_of_step in after_steps
    ):
        return
    if any(None in f["weights"] for f in after_steps[0]):
        return
    sends = [
        calls for facts_of_step in rounds if (calls := calls_by_hand(facts_of_step, "parameter"))
    ]
    if len(sends) >= 2 and len(sends) > len(rounds) / 2:
        yield Finding(
            "sends-more-than-needed",
            LIKELY,
            f"After {share_in_words(len(sends), len(rounds), 'steps')} the weights are sent, "
            "although they are equal on all ranks already.",
            "Equal weights and equal gradients stay equal: send nothing.",
            lines_of(sends[0][0]),
            DDP_PAGE,
        )
