"""MemoryLedger: bytes of a step by part, and the strategies of chapter 06 beside their formulas."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy

from benchmarks.gpu.measurements import record
from ddp_workbook.chapters.digits import DigitsTransformer
from ddp_workbook.experiments.fully_sharded import ledger as experiment
from ddp_workbook.experiments.fully_sharded import strategies
from manyranks.launcher.launch import launch
from manyranks.planning import formulas
from manyranks.recording.memory import MemoryLedger, Moment
from tests.workers import ledger as workers

FLOAT = 4  # bytes


def parameters_of(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# Strategies


@pytest.mark.parametrize(
    ("ranks", "width", "depth"),
    [
        pytest.param(4, 36, 1, marks=pytest.mark.long),
        pytest.param(3, 64, 2, marks=pytest.mark.push("bytes of every strategy")),
        pytest.param(1, 36, 1, marks=pytest.mark.push("bytes of every strategy")),
        *(
            pytest.param(ranks, width, depth, marks=pytest.mark.release("bytes of every strategy"))
            for ranks, width, depth in [(1, 64, 2), (2, 36, 1), (2, 64, 2), (3, 36, 1), (4, 64, 2)]
        ),
    ],
)
def test_every_strategy_holds_and_sends_what_the_formulas_say(ranks, width, depth):
    """Within 2 %, on all ranks; activations within 2 % as well, calls exactly.

    A group of one calls its collectives too, and sends nothing.
    """
    held, wire = experiment.strategies(ranks, width, depth)
    assert experiment.max_relative_error(held) <= 0.02
    activations = held[held["part"] == "activations"]
    assert (activations["predicted"] / activations["measured"]).between(0.98, 1.02).all()
    if ranks == 1:
        assert (wire["in_ring"] == 0).all()
    else:
        assert (wire["calls"] == wire["predicted_calls"]).all()
        assert (wire["bytes"] == wire["predicted_bytes"]).all()
    sizes = held.pivot(index=["strategy", "rank"], columns="part", values="measured")
    assert (sizes["peak"] >= sizes["parameters"] + sizes["optimizer"]).all()


@pytest.mark.push("bytes of every strategy")
def test_in_three_dtypes_strategies_keep_and_send_what_the_formulas_say():
    """fp32, bf16 reduced in fp32, and bf16 reduced in bf16: on 4 ranks, to the byte."""
    held, wire = experiment.strategies(4, 64, 2, among=strategies.in_all_dtypes())
    compared = held[held["part"].isin(("parameters", "gradients", "optimizer", "unsharded"))]
    assert (compared["predicted"] == compared["measured"]).all()
    assert (wire["calls"] == wire["predicted_calls"]).all()
    assert (wire["bytes"] == wire["predicted_bytes"]).all()


@pytest.mark.push("bytes of every strategy")
def test_bytes_in_three_dtypes_are_those_of_the_page():
    """As multiples of DDP's in float32: 1.5 for fully_shard is true in float32 alone."""
    times = experiment.traffic_by_dtype()
    assert times.loc["DDP"].tolist() == [1, 1, 0.5]
    assert times.loc["fully_shard"].tolist() == [1.5, 1, 0.75]
    assert times.loc["blocks stay gathered"].tolist() == [1, 0.75, 0.5]
    assert times.loc["ZeRO-1"].tolist() == [1.5, 1.5, 1]  # its broadcasts are float32


@pytest.mark.push("bytes of every strategy")
def test_all_strategies_compute_the_same_loss():
    """In float32; bf16 keeps three digits. One process does not see the others' rows."""
    chosen = [
        strategy for strategy in strategies.STRATEGIES.values() if strategy.kind != "one process"
    ]
    of_ranks = launch(strategies.measure_steps, chosen, 32, 1, ranks=4)
    for of_rank in of_ranks:
        losses = {name: step.loss for name, step in of_rank.items()}
        exact = torch.tensor([loss for name, loss in losses.items() if name != "bf16"])
        assert torch.allclose(exact, exact[0].expand_as(exact), atol=1e-5)
        assert losses["bf16"] == pytest.approx(losses["DDP"], rel=0.02)


@pytest.mark.push("bytes of every strategy")
def test_the_tables_and_the_picture_of_strategies(held_of_two):
    """A row a strategy, kB, and an alt text that names all of them."""
    held, wire = held_of_two
    table = experiment.ledger_table(held)
    names = list(held["strategy"].unique())
    assert list(table.index) == names
    whole = parameters_of(DigitsTransformer(32, 1)) * FLOAT / 1000
    assert table.loc["DDP", "parameters"] == pytest.approx(whole, abs=0.05)
    wire_table = experiment.wire_table(wire)
    assert "one process" not in wire_table.index  # it sends nothing
    in_ring = wire_table["kB sent in a ring"]
    assert in_ring["DDP"] == pytest.approx(whole, abs=0.1)  # 2 (N-1)/N of it
    assert in_ring["fully_shard"] == pytest.approx(1.5 * whole, rel=0.05)  # the root: once
    picture = experiment.bars(held)
    assert len(picture.axes.patches) == 2 * 6 * len(names)
    assert all(name in picture.alt for name in names)


@pytest.fixture(scope="module")
def held_of_two():
    return experiment.strategies(2, 32, 1)


def test_what_a_gpu_has_recorded_stands_beside_the_formulas(tmp_path):
    """Counted on rank 0 of eight, in MB."""
    model = DigitsTransformer(64, 3)
    parameter_bytes = 4 * parameters_of(model) * FLOAT
    size = {"width": 64, "depth": 3, "batch": 64}
    sizes = {"counted_bytes": parameter_bytes, "peak_bytes": 2 * parameter_bytes}
    rows = [
        size | sizes | {"strategy": name, "ranks": 8, "after": after}
        for name in ("one process", "unheard of")
        for after in ("built", "optimizer step", "next step")
    ]
    record("memory", rows, "a GPU", tmp_path)
    (row,) = experiment.read_ledger(tmp_path).to_dict("records")
    assert (
        row["kept, by formula"]
        == row["kept, counted"]
        == pytest.approx(parameter_bytes / 1e6, abs=0.05)
    )
    assert row["allocator's peak"] == pytest.approx(2 * parameter_bytes / 1e6, abs=0.05)
    assert row["all parts, by formula"] > row["kept, by formula"]


def test_policies_of_a_reader_are_measured():
    """In kB; without reduce_dtype the gradients are scattered in bfloat16 as well."""
    held = experiment.memory_with_policies(
        2, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    )
    units, how = strategies.units_of(DigitsTransformer(64, 8)), strategies.Strategy("").policy
    default = formulas.fully_sharded(units, 2, policy=how)
    assert held["unsharded"].item() == pytest.approx(default.unsharded / 2000, rel=0.02)
    assert held["parameters"].item() == pytest.approx(default.parameters / 1000, rel=0.02)


def test_deeper_models_have_no_more_unsharded():
    """What chapter 06's page says of blocks."""
    table = experiment.by_depth([8, 80])
    assert table["unsharded, kB"].nunique() == 1
    assert table.loc[80, "fully_shard keeps, kB"] > 9 * table.loc[8, "fully_shard keeps, kB"]


def test_pinned_memory_needs_an_accelerator():
    """Why the strategy that offloads asks for memory that is not pinned."""
    message = launch(workers.cpu_offload_error, ranks=1, as_if_gpus=False)[0]
    if not torch.accelerator.is_available():
        of_builds = ("Cannot access accelerator device when none is available", "no NVIDIA driver")
        assert any(words in message for words in of_builds)  # for CPUs, and for CUDA


# The instrument


@pytest.fixture(scope="module")
def ledgers():
    """By way: what rank 1 of 2 saw of a step."""
    return launch(workers.steps, 32, 3, ranks=2)[1]


MODEL = DigitsTransformer(32, 3)
BLOCK = parameters_of(MODEL.blocks[0]) * FLOAT
ALL = parameters_of(MODEL) * FLOAT


@pytest.mark.push("bytes of every strategy")
def test_measuring_changes_no_number(ledgers):
    """Each loss is the same to the last bit with a ledger and without."""
    for way, step in ledgers.items():
        assert step.losses == step.unmeasured, way


@pytest.mark.push("bytes of every strategy")
def test_ddp_holds_all_of_it_and_the_gradients_twice(ledgers):
    """Unless the gradients are views of the buckets."""
    held, views = ledgers["DDP"].held, ledgers["DDP, views"].held
    assert (held.parameters, held.gradients, held.buckets, held.unsharded) == (ALL, ALL, ALL, 0)
    assert (views.gradients, views.buckets) == (ALL, 0)


@pytest.mark.long
def test_a_rank_keeps_half_of_everything(ledgers):
    """By hand and with fully_shard; padding aside, of which there is little."""
    for way in ("by hand", "whole", "by block"):
        held = ledgers[way].held
        assert held.parameters == pytest.approx(ALL / 2, rel=0.01)
        assert held.gradients == pytest.approx(ALL / 2, rel=0.01)
        assert held.optimizer == pytest.approx(ALL, rel=0.01)


def test_what_is_whole_when(ledgers):
    """By block and by hand one block at a time; wrapped as a whole, all of it all the time."""
    at_most = {
        way: max(len([u for u in moment.whole if u != "root"]) for moment in s.timeline)
        for way, s in ledgers.items()
    }
    assert at_most == {
        "DDP": 0, "DDP, views": 0, "by hand": 1, "keeps all": 3, "whole": 0, "by block": 1,
    }  # fmt: skip
    computing = [m for m in ledgers["whole"].timeline if "blocks" in m.event]
    assert {moment.whole["root"] for moment in computing} == {ALL}


def test_the_blocks_come_in_order(ledgers):
    """Forward from the first to the last, backward from the last to the first."""
    there = [f"forward blocks.{i}" for i in range(3)]
    back = [f"backward blocks.{i}" for i in (2, 1, 0)]
    for way in ("by hand", "whole", "by block"):
        events = dict.fromkeys(moment.event for moment in ledgers[way].timeline)
        expected = ["forward", *there, "backward", *back, "update"]
        assert list(events) == expected


def test_each_block_is_whole_in_its_own_forward_and_backward(ledgers):
    """And gone before the next one's forward is over."""
    for way in ("by hand", "by block"):
        for event in ("forward blocks.1", "backward blocks.1"):
            whole = [m.whole for m in ledgers[way].timeline if m.event == event]
            assert max(sizes.get("blocks.1", 0) for sizes in whole) == BLOCK
        later = [m.whole for m in ledgers[way].timeline if m.event == "forward blocks.2"]
        assert max(sizes.get("blocks.1", 0) for sizes in later) == 0


def test_what_is_never_freed_shows(ledgers):
    """The mistake that this instrument is there for."""
    assert ledgers["keeps all"].held.unsharded > ledgers["by hand"].held.unsharded + BLOCK
    assert ledgers["keeps all"].held.peak > ledgers["by hand"].held.peak + BLOCK


def test_the_most_of_the_timeline_is_the_unsharded_part(ledgers):
    """Held and timeline are one count."""
    for way, step in ledgers.items():
        assert max(moment.bytes for moment in step.timeline) == step.held.unsharded
        assert step.timeline[0] == Moment("forward", {})
        assert (step.timeline[-1].live == {}) == (way != "keeps all")


# Without ranks


def two_layers() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    return model, torch.optim.AdamW(model.parameters())


def test_one_process_by_the_byte():
    """Four sizes that can be counted by hand."""
    model, optimizer = two_layers()
    rows = torch.ones(5, 8)
    for _ in range(2):
        with MemoryLedger(model, optimizer) as ledger:
            optimizer.zero_grad()
            model(rows).sum().backward()
            optimizer.step()
    shapes = [[p.shape for p in model.parameters()]]
    expected = formulas.one_process(shapes)
    held = ledger.held
    assert (held.parameters, held.gradients, held.optimizer) == (
        expected.parameters, expected.gradients, expected.optimizer,
    )  # fmt: skip
    assert (held.unsharded, held.buckets, held.host) == (0, 0, 0)
    hidden, scores, loss = 5 * 16, 5 * 2, 1
    # tanh saves its output; the scores and the loss are alive as backward begins
    assert hidden * FLOAT <= held.activations <= (hidden + scores + loss) * FLOAT
    assert held.model_states + rows.nbytes <= held.peak  # all are there as the optimizer steps


def test_gradients_are_counted_as_the_optimizer_finds_them():
    """Also if the step ends with zero_grad, and without an optimizer."""
    model, optimizer = two_layers()
    with MemoryLedger(model, optimizer) as ledger:
        model(torch.ones(5, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    with MemoryLedger(model) as without:
        model(torch.ones(5, 8)).sum().backward()
    whole = parameters_of(model) * FLOAT
    assert ledger.held.gradients == without.held.gradients == whole
    assert without.held.optimizer == 0


def test_sparse_gradients_and_closures_are_counted():
    """An embedding's gradient is indices and values; LBFGS calls backward inside its step."""
    embedding = nn.Embedding(20, 16, sparse=True)
    with MemoryLedger(embedding, torch.optim.SGD(embedding.parameters())) as ledger:
        embedding(torch.tensor([1, 2, 3])).sum().backward()
    rows, index = 3 * 16 * FLOAT, 3 * 8
    assert ledger.held.gradients == rows + index
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.LBFGS(layer.parameters())

    def closure():
        optimizer.zero_grad()
        loss = layer(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss

    with MemoryLedger(layer, optimizer) as ledger:
        optimizer.step(closure)
    assert ledger.held.gradients == parameters_of(layer) * FLOAT


def test_it_keeps_no_model_alive():
    """DDP must not outlive its group."""
    model, optimizer = two_layers()
    alive = weakref.ref(model)
    with MemoryLedger(model, optimizer) as ledger:
        model(torch.ones(5, 8)).sum().backward()
    del model, optimizer
    gc.collect()
    assert alive() is None and ledger.held.peak


def test_nothing_of_it_stays_behind():
    """The method that it patches, its hooks, and its storages."""
    model, optimizer = two_layers()
    resize = torch.UntypedStorage.resize_
    with pytest.raises(ZeroDivisionError), MemoryLedger(model, optimizer):
        model(torch.ones(5, 8)).sum().backward()
        _ = 1 / 0
    assert torch.UntypedStorage.resize_ is resize
    assert not [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert not nn.modules.module._global_forward_pre_hooks
    assert not optimizer._optimizer_step_pre_hooks


def test_it_is_read_when_it_is_over_and_used_once():
    """Each with words that say what to do."""
    model, _ = two_layers()
    ledger = MemoryLedger(model)
    with pytest.raises(RuntimeError, match="once its `with` block has been left"):
        _ = ledger.held
    with ledger:
        model(torch.ones(5, 8))
    with pytest.raises(RuntimeError, match="make a new one"), ledger:
        pass
