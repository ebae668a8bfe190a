"""Plans with tensor, pipeline, context and expert degrees: formulas beside torch, best splits."""

import time
from collections import defaultdict
from itertools import product

import pytest
import torch
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

from manyranks import record_collectives, run_and_record
from manyranks.planning import formulas
from manyranks.planning.formulas import Policy
from manyranks.planning.messages import Message, pipeline_messages, tensor_messages
from manyranks.planning.pipeline import Pipeline
from manyranks.planning.plan import Plan, plan
from manyranks.planning.search import Splits, best_splits, costs
from manyranks.planning.sizes import PlanRefused
from manyranks.planning.speed import between_nodes, call_seconds, in_ring
from tests.commands import run
from tests.workers import parallel_workers as workers
from tests.workers.planning_workers import SMALL, over_micro_batches

BF16, FP32 = torch.bfloat16, torch.float32


# Schedules

TORCH = {"gpipe": "GPipe", "interleaved": "Interleaved1F1B", "zero-bubble": "InterleavedZeroBubble"}
KINDS = {"FORWARD": "F", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W", "FULL_BACKWARD": "B"}
Order = list[tuple[str, int, int]]  # what, stage, micro-batch


def orders_of(pipeline: Pipeline) -> list[Order]:
    """What each rank computes, in order: torch's schedule, or 1F1B as its authors describe it."""
    if pipeline.schedule == "1f1b":
        orders = []
        for rank in range(pipeline.ranks):
            warm_up = min(pipeline.ranks - 1 - rank, pipeline.micro_batches)
            forwards = [("F", rank, n) for n in range(pipeline.micro_batches)]
            order: Order = forwards[:warm_up]
            for n in range(pipeline.micro_batches):
                order += [*forwards[warm_up + n : warm_up + n + 1], ("B", rank, n)]
            orders.append(order)
        return orders
    stages = pipeline.stages if pipeline.schedule != "gpipe" else None
    of_ranks = get_schedule_ops(
        TORCH[pipeline.schedule], pipeline.ranks, pipeline.micro_batches, stages
    )
    return [
        [
            (KINDS[action.computation_type.name], action.stage_index, action.microbatch_index)
            for action in order
            if action and action.computation_type.name in KINDS
        ]
        for order in of_ranks
    ]


def run_orders(pipeline: Pipeline, seconds: dict[str, int]) -> tuple[int, list[int]]:
    """When the last rank is done, and how many activations each rank keeps at most."""
    orders, last = orders_of(pipeline), pipeline.total_stages - 1
    done: dict[tuple[str, int, int], int] = {}
    now, kept, most = defaultdict(int), defaultdict(int), defaultdict(int)
    waiting = [list(order) for order in orders]
    while any(waiting):
        before = sum(map(len, waiting))
        for rank, order in enumerate(waiting):
            while order:
                what, stage, n = order[0]
                needs = ("F", stage - 1, n) if what == "F" else ("gradient", stage + 1, n)
                if what == "W" or (what != "F" and stage == last):
                    needs = ("F", stage, n)
                if needs not in done and not (what == "F" and stage == 0):
                    break
                now[rank] = max(now[rank], done.get(needs, 0)) + seconds[what]
                if what != "W":
                    done["F" if what == "F" else "gradient", stage, n] = now[rank]
                kept[rank] += (what == "F") - (what in "BW")
                most[rank] = max(most[rank], kept[rank])
                order.pop(0)
        assert sum(map(len, waiting)) < before, "the ranks wait for each other"
    return max(now.values()), [most[rank] for rank in range(pipeline.ranks)]


@pytest.mark.parametrize(
    "schedule, stages", [("gpipe", 1), ("1f1b", 1), ("interleaved", 3), ("zero-bubble", 2)]
)
def test_bubble_and_activations_in_flight_are_those_of_the_schedule_itself(schedule, stages):
    """Also with fewer micro-batches than ranks, with uneven rounds, and with recomputing."""
    for ranks, micro_batches, recompute in product((2, 4), (2, 4, 6, 12), (False, True)):
        pipeline = Pipeline(schedule, ranks, stages, micro_batches)
        if schedule == "zero-bubble" and micro_batches < ranks:
            continue
        inputs = 1 + recompute
        seconds = {"F": 1, "I": inputs, "W": 1, "B": inputs + 1}
        total, most = run_orders(pipeline, seconds)
        work = stages * micro_batches * (2 + inputs)
        assert pipeline.bubble(recompute=recompute) == pytest.approx(1 - work / total), pipeline
        assert [pipeline.in_flight(rank) for rank in range(ranks)] == most, pipeline


@pytest.mark.parametrize(
    "schedule, stages, micro_batches", [("gpipe", 1, 5), ("1f1b", 1, 5), ("interleaved", 2, 4)]
)
def test_real_ranks_keep_and_send_what_the_formulas_say(schedule, stages, micro_batches):
    pipeline = Pipeline(schedule, 2, stages, micro_batches)
    arguments = (schedule, stages, micro_batches)
    kept, wire = run_and_record(workers.step_of_a_pipeline, *arguments, ranks=2)
    assert kept == [pipeline.in_flight(rank) for rank in range(2)]
    size = 4 * workers.WIDTH
    for rank in range(2):
        calls = pipeline_messages(size, pipeline, rank, stride=1)
        sent = sum(call.times for call in calls if call.op == "send")
        assert len(wire.query("rank == @rank and op == 'send' and bytes == @size")) == sent


def test_blocks_are_dealt_out_as_in_torchtitan():
    """Llama 3 405B's 126 blocks on 16 ranks: 8 each, but 7 beside the embedding and the output."""
    sixteen = Pipeline("interleaved", 16, 8, 32)
    counts = [sum(map(len, sixteen.blocks(126, rank))) for rank in range(16)]
    assert counts == [7, *[8] * 14, 7]
    uneven = Pipeline("1f1b", 4, 1, 8)
    assert [uneven.blocks(9, rank) for rank in range(4)] == [
        [range(2)], [range(2, 5)], [range(5, 8)], [range(8, 9)],
    ]  # fmt: skip
    assert uneven.different_ranks(9) == [0, 1, 3]
    assert uneven.different_ranks(9, dense={0, 1, 2}) == [0, 1, 2, 3]  # of which rank 1 has one


# Calls and bytes


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_cut_block_sends_what_the_formula_says(sequence_parallel):
    """Two all-reduces forward and two backward, or as many bytes in twice as many calls."""
    wire = record_collectives(workers.step_of_a_cut_block, sequence_parallel, ranks=2)
    wire = wire.query("rank == 0 and op != 'scatter'")  # which cuts the weights
    names = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter"}
    sent = sum(
        in_ring(Message(names.get(call.op, call.op), "", call.bytes, call.received, 2))
        for call in wire.itertuples()
    )
    size = 4 * workers.BATCH * workers.SEQUENCE * workers.WIDTH
    calls = tensor_messages(1, size, ranks=2, forwards=1)
    assert sent == sum(call.times * in_ring(call) for call in calls)
    assert len(wire) == sum(call.times for call in calls) * (1 + sequence_parallel)


@pytest.mark.parametrize("dtypes", [(None, None), (BF16, FP32)])
def test_a_stage_holds_whole_weights_and_gradients_until_the_last_micro_batch(dtypes):
    held = over_micro_batches(SMALL, 3, dtypes)
    policy = Policy(False, param_dtype=dtypes[0], reduce_dtype=dtypes[1])
    weights, gradients, new = formulas.stage_pieces(SMALL.units(), 3, policy).values()
    assert held.parameters == weights
    gap = weights + gradients + new - (held.parameters + held.gradients + held.unsharded)
    assert 0 <= gap <= new


def test_bytes_of_each_degree_by_hand():
    """Llama 3 405B on 8 x 4 x 2 GPUs: a layer's keys and values, a stage's output, experts."""
    result = plan("405B", 1024, tensor=8, context=4, pipeline=2, sequence=8192, micro_batches=2)
    tokens, width, kv = 8192 // 4, 16384, 1024
    calls = {(call.op, call.when): call for call in result.messages if call.op != "all_gather"}
    assert calls["all_reduce", "forward"].bytes == 2 * tokens * width
    assert calls["all_reduce", "forward"].times == 2 * 2 * 63 * 2  # forward twice, of 63 blocks
    assert calls["send", "forward"].bytes == 2 * tokens * width // 8  # of the first rank
    assert calls["recv", "backward"].times == 2 and ("send", "backward") not in calls
    keys = [call for call in result.messages if call.ranks == 4 and call.op == "all_gather"]
    assert {call.bytes for call in keys} == {2 * tokens * 2 * kv // 8}
    assert [call.times for call in keys] == [2 * 63 * 2, 63 * 2]
    mixtral = plan("Mixtral 8x7B", 64, expert=8)
    (there, back) = [call for call in mixtral.messages if call.op == "all_to_all"]
    assert there.bytes == 2 * 4096 * 2 * 4096 and there.times == 2 * 2 * 32 and back.times == 64


def test_experts_on_their_own_ranks_are_kept_as_before_and_gathered_less():
    """The same bytes between steps, an eighth of the experts for a moment."""
    alone, cut = (plan("Mixtral 8x7B", 64, expert=number) for number in (1, 8))
    assert cut.ledger.model_states == pytest.approx(alone.ledger.model_states, rel=1e-4)
    assert cut.ledger.unsharded < alone.ledger.unsharded / 4
    gathered = [
        sum(c.times * c.received for c in one.messages if c.op == "all_gather")
        for one in (alone, cut)
    ]
    assert gathered[1] < gathered[0] / 6
    experts = [call for call in cut.messages if (call.ranks, call.op) == (8, "all_gather")]
    assert {call.stride for call in experts} == {8}


def test_an_all_to_all_sends_to_each_rank_over_its_own_link():
    """16 ranks in two nodes: half of the bytes leave the node, 7 of 16 stay in it."""
    cluster = plan("8B", 16).settings.cluster
    call = Message("all_to_all", "forward", 16 * 10**9, 16 * 10**9, 16)
    assert between_nodes(call, cluster) == 8 * 10**9 and in_ring(call) == 15 * 10**9
    port = cluster.between.bytes_per_second * 235 / 300
    assert call_seconds(call, cluster) == pytest.approx(8e9 / port, rel=0.001)
    inside = call_seconds(call._replace(ranks=8), cluster)
    assert inside == pytest.approx(14e9 / (cluster.inside.bytes_per_second * 235 / 300), rel=0.001)


def test_degrees_share_the_work_and_nothing_gets_lost():
    """Tokens a second on all GPUs times seconds are the tokens of a step, whatever the split."""
    ways: list[dict] = [
        {}, {"tensor": 4}, {"context": 4}, {"pipeline": 4}, {"tensor": 2, "pipeline": 2},
        {"pipeline": 2, "context": 2, "schedule": "interleaved"},
    ]  # fmt: skip
    for way in ways:
        result = plan("8B", 16, global_batch=64, checkpoint=False, **way)
        tokens = 16 * result.tokens_per_second * result.seconds
        assert tokens == pytest.approx(64 * 4096), way
        assert result.mfu <= 0.5
    one, four = plan("8B", 4, checkpoint=False), plan("8B", 4, context=4, checkpoint=False)
    assert one.compute_seconds == pytest.approx(4 * four.compute_seconds)


def test_a_bubble_takes_its_share_of_the_step():
    """Of a pipeline whose stages compute for as long: 3 of 11 parts with 8 micro-batches."""
    result = plan("8B", 4, pipeline=4, micro_batches=8, checkpoint=False)
    assert result.bubble == pytest.approx(3 / 11)
    busy = result.compute_seconds + result.bubble_seconds
    assert result.bubble_seconds / busy == pytest.approx(3 / 11)
    assert "of bubble on top" in result.bound and "bubble 27.3%" in str(result)
    few = plan("8B", 4, pipeline=4, micro_batches=2)
    assert few.bubble == pytest.approx(3 / 5) and "never full" in str(few)
    assert "never full" not in str(result)


# To the byte, as they were when their formulas had been compared with real ranks
PINNED = [
    (
        {"parameters": "405B", "gpus": 8192, "tensor": 8, "pipeline": 16, "sequence": 8192,
         "schedule": "interleaved", "stages_per_rank": 8, "global_batch": 2048,
         "checkpoint": False},
        (199245824, 398491936, 19924582400, 91084357632), (1, 141), (10.993, 1.422, 0.727),
    ),
    (
        {"parameters": "DeepSeek-V3", "gpus": 2048, "pipeline": 16, "expert": 64, "context": 2,
         "schedule": "zero-bubble", "global_batch": 1024},
        (83703296, 167406740, 17918885888, 2668642304), (0, 16), (1.668, 2.148, 1.789),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("options", "held", "fullest", "seconds"), PINNED, ids=str)
def test_a_plan_with_degrees_is_what_it_was(options, held, fullest, seconds):
    result = plan(**options)
    ledger = result.ledger
    assert held == (ledger.parameters, ledger.optimizer, ledger.unsharded, ledger.activations)
    assert sum(result.whole.values()) == ledger.unsharded
    assert (result.rank, result.in_flight) == fullest
    exposed = result.tensor_seconds + result.context_seconds + result.expert_seconds
    times = result.compute_seconds, exposed, result.bubble_seconds
    assert tuple(round(each, 3) for each in times) == seconds


# Bad input

BAD = [
    ({"tensor": 8, "pipeline": 3}, ["pipeline=3", "24 GPUs", "do not divide 64"]),
    ({"tensor": 2, "pipeline": 2, "data": 4}, ["x data=4", "16 GPUs, not 64", "gpus=16"]),
    ({"pipeline": 128, "gpus": 128}, ["128 stages", "80 blocks", "at most 82"]),
    ({"pipeline": 64, "schedule": "interleaved"}, ["64 x 2 stages a rank", "128 stages"]),
    ({"context": 3, "gpus": 6}, ["context=3", "4,096 tokens", "sequence=4092"]),
    ({"expert": 4}, ["expert=4", "Llama 3 70B has no experts", "Mixtral 8x7B"]),
    ({"parameters": "Mixtral 8x7B", "expert": 3}, ["expert=3", "8 experts"]),
    ({"parameters": "Mixtral 8x7B", "expert": 8, "gpus": 4}, ["expert=8", "4 ranks"]),
    ({"parameters": "1B", "pipeline": 2}, ["pipeline=2", "output layer as well", '"8B"']),
    ({"pipeline": 2, "schedule": "gpipe", "stages_per_rank": 2}, ["stages_per_rank=2", "gpipe"]),
    ({"pipeline": 4, "schedule": "interleaved", "micro_batches": 9}, ["9 micro-batches", "of 4"]),
    ({"pipeline": 4, "schedule": "zero-bubble", "micro_batches": 3}, ["3 micro-batches", "1f1b"]),
    ({"pipeline": 2, "schedule": "1f2b"}, ["1f2b", '"1f1b"']),
    ({"schedule": "gpipe"}, ["schedule", "pipeline=2"]),
    ({"pipeline": 2, "strategy": "DDP"}, ["pipeline", "DDP"]),
    ({"pipeline": 2, "offload": True}, ["offload=True", "leave it out"]),
    ({"pipeline": 2, "micro_batches": 2, "global_batch": 64}, ["micro_batches", "one of them"]),
    ({"parameters": "mixtral"}, ["mixtral", "Mixtral 8x7B"]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "words"), BAD, ids=str)
def test_bad_input_is_named_with_its_mend(options, words):
    with pytest.raises(PlanRefused) as refused:
        plan(**options)
    for word in words:
        assert word in str(refused.value)


def test_what_would_fit_does_with_degrees_as_well():
    result = plan("405B", 512, tensor=8, pipeline=8, micro_batches=32, sequence=131072)
    assert not result.fits and result.would_fit
    assert all("offload" not in words and "reshard" not in words for words in result.would_fit)


# Best splits


def by_trying(gpus: int, global_batch: int) -> dict[tuple, float]:
    """Seconds of each split of Llama 3 8B that fits, without checkpointing, one by one."""
    seconds: dict[tuple, float] = {}
    degrees = [n for n in (1, 2, 4, 8) if n <= gpus]
    stages = product(("interleaved", "zero-bubble"), (1, 2, 4, 8))
    schedules: list[dict] = [{}, *({"schedule": s, "stages_per_rank": v} for s, v in stages)]
    for tensor, pipeline, context in product(degrees, degrees, degrees):
        for schedule, batch in product(schedules, (1, 2, 4, 8) if pipeline == 1 else (1,)):
            try:
                result = plan(
                    "8B", gpus, tensor=tensor, pipeline=pipeline, context=context, batch=batch,
                    global_batch=global_batch, checkpoint=False, **schedule,
                )  # fmt: skip
            except PlanRefused:
                continue
            key = tensor, pipeline, context
            if result.fits:
                seconds[key] = min(result.seconds, seconds.get(key, result.seconds))
    return {key: seconds[key] for key in sorted(seconds, key=seconds.__getitem__)}


def split_of(result: Plan) -> tuple[int, int, int]:
    settings = result.settings
    return settings.tensor, settings.pipeline, settings.context


def test_the_best_splits_are_those_that_trying_all_of_them_finds():
    found = best_splits("8B", 8, global_batch=16, checkpoint=False, most=4)
    expected = by_trying(8, 16)
    assert [split_of(one) for one in found.plans] == list(expected)[:4]
    assert [one.seconds for one in found.plans] == pytest.approx(list(expected.values())[:4])


@pytest.fixture(scope="module")
def llama() -> Splits:
    """Llama 3 405B with the GPUs, tokens and sequence of its long-context training."""
    return best_splits("405B", 16384, global_batch=128, sequence=131072)


def test_the_best_split_of_llama_3_is_its_published_one(llama):
    best = llama.plans[0]
    assert split_of(best) == (8, 16, 16) and best.settings.data == 8
    assert len(llama.plans) == 5 and all(one.fits for one in llama.plans)


def test_every_reason_is_the_largest_cost_beside_the_best(llama):
    """And the costs of a plan are all of its step."""
    best = llama.plans[0]
    assert llama.reasons[0] == "" and "1. tensor 8 x pipeline 16" in str(llama)
    for one, why in list(zip(llama.plans, llama.reasons, strict=True))[1:]:
        more = {name: cost - costs(best)[name] for name, cost in costs(one).items()}
        assert f"slower: {max(more, key=more.__getitem__)} takes" in why
        assert why in str(llama)
        assert sum(costs(one).values()) == pytest.approx(one.seconds)


def test_links_decide_how_the_gpus_are_split():
    """On slow links between nodes, fully_shard's calls are the reason to have a pipeline."""
    fast, slow = (
        best_splits("8B", 64, global_batch=256, link=link)
        for link in ("InfiniBand NDR", "Ethernet 25G")
    )
    assert fast.plans[0].settings.pipeline == 1 < slow.plans[0].settings.pipeline
    alone = best_splits("8B", 64, global_batch=256, link="Ethernet 25G", pipeline=1)
    assert {one.settings.pipeline for one in alone.plans} == {1}
    assert alone.plans[0].seconds > slow.plans[0].seconds


def test_where_no_split_fits_it_is_said():
    none = best_splits("70B", 8)
    assert none.plans == () and "None of the 19 splits fits" in str(none)
    for options, words in (
        ({"tensor": 3}, "tensor=3"),
        ({"pipeline": 7}, "pipeline=7"),
        ({"strategy": "DDP"}, "strategy"),
        ({"schedule": "1f2b"}, "1f2b"),
    ):
        with pytest.raises(PlanRefused, match=words):
            best_splits("70B", 64, **options)


@pytest.mark.push("plans of large models")
@pytest.mark.parametrize("model", ["405B", "DeepSeek-V3"])
def test_the_best_of_thousands_of_ways_are_found_in_seconds(model):
    """In one second on two quiet cores; beside other work it may take three times as long."""
    start = time.process_time()
    best_splits(model, 8192, global_batch=8192)
    assert time.process_time() - start < 3


def test_the_command_shows_the_best_splits_and_exits_so():
    code, output = run("plan", "--best", "--parameters", "8B", "--gpus", 16, "--tensor", 2)
    assert code == 0 and "1. tensor 2 x data 8" in output and "2. tensor 2 x" in output
    assert run("plan", "--best", "--parameters", "70B", "--gpus", 8)[0] == 1
    code, output = run("plan", "--gpus", 64, "--tensor", 8, "--pipeline", 4, "--schedule", "gpipe")
    assert code == 0 and "pipeline of 4, gpipe" in output
    code, output = run("plan", "--best", "--expert", 4, COLUMNS="400")
    assert code == 2 and "has no experts" in output


def test_three_walls_of_fully_shard_alone():
    """One block's activations, the batch a GPU, the bytes of a step: each has its degree."""
    long = {"parameters": "405B", "gpus": 1024, "sequence": 262144}
    alone, cut = plan(**long), plan(**long, tensor=8, context=16)
    assert alone.block_activations > alone.settings.memory
    assert cut.block_activations == pytest.approx(alone.block_activations / 128, rel=0.01)
    with pytest.raises(PlanRefused, match="16384 ranks"):
        plan("405B", 16384, global_batch=2048)
    assert plan("405B", 16384, global_batch=2048, tensor=8).settings.data == 2048
    slow = {"gpus": 64, "link": "Ethernet 25G", "global_batch": 256}
    assert plan("8B", **slow).bound_by == "network"
    assert plan("8B", **slow, pipeline=16).bound_by == "compute"
