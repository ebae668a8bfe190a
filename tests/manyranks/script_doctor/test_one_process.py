"""The doctor's judge: is the gradient of the ranks that of one process on the same rows?"""

import dataclasses
import json
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from manyranks.script_doctor.batches import CannotJoin, as_plain, from_plain, join
from manyranks.script_doctor.diagnosis import doctor
from manyranks.script_doctor.facts import LIKELY, NOTE, WRONG
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)

# A healthy program; a case replaces one of the names in capitals.
PROGRAM = """
import dataclasses, os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch.utils.checkpoint import checkpoint

@dataclasses.dataclass
class Pair:
    x: torch.Tensor
    y: torch.Tensor

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)
    def forward(self, x):
        x = x.view(-1, 4, 4)
        return self.inner(x, x, x, need_weights=False)[0].reshape(-1, 16)

def stacked(items):
    return torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])

class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(6, generator=g), torch.randn(1, generator=g)

def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), DROP, nn.Linear(16, 1))
    model = WRAPPED
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    data = Numbers()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, LOADER)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            x, y = UNPACKED
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            BACKWARD
            optimizer.step()
            AFTER
    dist.destroy_process_group()

main()
"""
HEALTHY = {
    "DROP": "nn.Identity()",
    "WRAPPED": "DDP(model)",
    "LR": "1e-2",
    "LOADER": "",
    "UNPACKED": "batch",
    "BACKWARD": "loss.backward()",
    "AFTER": "pass",
}
BY_HAND = "(loss).backward(); [dist.all_reduce(p.grad) for p in model.parameters()]"
UNITS = "[fully_shard(m) for m in (model[0], model[3], model)][-1]"
HALF = "fully_shard(model, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))"
TWICE = (
    "model.set_requires_gradient_sync(False); (loss / 2).backward(); "
    "model.set_requires_gradient_sync(True); (nn.functional.mse_loss(model(x), y) / 2).backward()"
)
OWN_NORM = (
    "loss.backward(); own = [p.grad.to_local() for p in model.parameters()]; "
    "norm = sum(g.square().sum() for g in own).sqrt(); [g.mul_(0.01 / norm) for g in own]"
)
WEIGHTED = "[p.grad.mul_((rank + 1) / world) for p in model.parameters()]"
OF_RANK_0 = "loss.backward(); [dist.broadcast(p.grad, 0) for p in model.parameters()]"
OWN_ROWS = {"UNPACKED": "torch.randn(8, 6) + rank, torch.randn(8, 1)"}
NEEDS_TWO = {"WRAPPED": "DDP(model) if world > 1 else 1 / 0"}
OF_ONE = "[dist.new_group([r]) for r in range(world)][rank]"
EQUAL = "the gradient is that of one process on the same"


@pytest.fixture
def train(tmp_path, monkeypatch):
    """`train(NAME="its code", ...)`: the doctor's report on the program with these parts."""
    monkeypatch.chdir(tmp_path)

    def report(ranks: int = 2, **parts: str):
        text = PROGRAM
        for name, code in (HEALTHY | parts).items():
            text = text.replace(name, code)
        path = Path("train.py")
        path.write_text(text)
        return doctor(path, ranks=ranks)

    return report


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"DROP": "nn.Dropout(0.5)", "WRAPPED": "DDP(model); torch.manual_seed(rank)"},
        {"DROP": "nn.BatchNorm1d(16)"},
        {"DROP": "Attention()", "WRAPPED": "DDP(model); torch.manual_seed(rank)"},
        {"WRAPPED": "DDP(model) if world > 1 else model"},
        {"WRAPPED": UNITS},
        # FSDP keeps what is not reduced yet out of sight; Adam makes whole steps of rounding errors
        {"WRAPPED": HALF, "BACKWARD": TWICE},
        {"WRAPPED": "model", "BACKWARD": f"loss = loss / world; {BY_HAND}"},
        {"BACKWARD": "(checkpoint(model, x, use_reentrant=False) - y).square().mean().backward()"},
        {"BACKWARD": "loss.backward(); nn.utils.clip_grad_norm_(model.parameters(), 0.01)"},
        {"DROP": "nn.Linear(16, 16, dtype=torch.bfloat16).to(torch.float32)"},
        {"UNPACKED": "next(iter([batch])), torch.autocast('cpu', torch.bfloat16).__enter__()"}
        | {"UNPACKED": "batch; torch.set_autocast_enabled('cpu', False)"},
        {"LOADER": "num_workers=2"},
        {"LOADER": "collate_fn=list", "UNPACKED": "stacked(batch)"},
        {"LOADER": "collate_fn=lambda items: Pair(*stacked(items))"}
        | {"UNPACKED": "(batch.x, batch.y)"},
        {"LOADER": "collate_fn=lambda items: (*stacked(items), None, 'words')"}
        | {"UNPACKED": "batch[:2]"},
        {"AFTER": "torch.rand(rank + 1)"},
        {"LOADER": "); schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.1, 8 * world"}
        | {"AFTER": "[schedule.step() for _ in range(world)]"},  # as Accelerate does
    ],
    ids=lambda parts: " ".join(parts) or "as it stands",
)
def test_one_process_gives_the_same(parts, train):
    report = train(**parts)
    assert EQUAL in report.looked_at[0], report
    assert [f for f in report.findings if f.level != NOTE] == []


@pytest.mark.parametrize(
    ("parts", "level", "rule", "said"),
    [
        ({"BACKWARD": "(loss * world).backward()"}, WRONG, "gradient-scaled", "2.000 times"),
        ({"WRAPPED": "model", "BACKWARD": BY_HAND}, WRONG, "gradient-scaled", "summed instead"),
        ({"WRAPPED": "model"}, WRONG, "not-synchronised", "its own gradient of all 4"),
        (
            {"WRAPPED": f"DDP(model, process_group={OF_ONE})"},
            WRONG,
            "not-synchronised",
            "its own gradient of all 4",
        ),
        (
            {
                "WRAPPED": "nn.ModuleList([DDP(model[:3]), model[3]])",
                "BACKWARD": "loss.backward()",
            }
            | {"UNPACKED": "batch; model.forward = lambda x: model[1](model[0](x))"},
            WRONG,
            "not-synchronised",
            "its own gradient of 2 of 4 parameters",
        ),
        (
            {"WRAPPED": "model", "BACKWARD": OF_RANK_0},
            WRONG,
            "gradient-of-one-rank",
            "the gradient of rank 0 alone",
        ),
        (
            {"WRAPPED": "model"}
            | {"BACKWARD": f"loss.backward(); {WEIGHTED}; {BY_HAND.partition('; ')[2]}"},
            LIKELY,
            "gradients-weighted",
            "It is 0.5 and 1 times",
        ),
        (
            {"WRAPPED": UNITS, "BACKWARD": OWN_NORM},
            WRONG,
            "shards-scaled-apart",
            "multiply their shards of one gradient by numbers of their own",
        ),
        (
            {"WRAPPED": UNITS, "BACKWARD": "loss.backward(); model[0].weight.grad.mul_(world)"},
            LIKELY,
            "gradient-differs",
            "in 1 of 4 parameters, such as 0.weight",
        ),
        (
            {"LOADER": "collate_fn=lambda items: stacked(items[: 8 - 3 * rank])"},
            LIKELY,
            "mean-of-unequal-batches",
            "with 8 and 5 rows",
        ),
        (
            {"AFTER": "world > 1 and model.module[0].weight.data.mul_(0.9)"},
            LIKELY,
            "update-differs",
            "the weights after the step are not",
        ),
        (
            OWN_ROWS
            | {"WRAPPED": "model"}
            | {"BACKWARD": f"loss.backward(); {WEIGHTED}; {BY_HAND.partition('; ')[2]}"},
            NOTE,
            "gradients-weighted",
            "The gradient is 0.5 and 1 times",
        ),
        (
            {"BACKWARD": "(loss + model(x).std()).backward()"},
            NOTE,
            "not-a-mean-over-rows",
            "the mean of what each rank computes",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_differs_is_named(parts, level, rule, said, train):
    report = train(**parts)
    (finding,) = [f for f in report.findings if f.rule == rule]
    assert finding.level == level and said in finding.fact + finding.meaning, report
    assert not any(EQUAL in words for words in report.looked_at)
    assert rule == "replicas-differ" or [f for f in report.findings if f.level == WRONG] in (
        [],
        [finding],
    )


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"UNPACKED": "torch.randn(8, 6) + rank, torch.randn(8, 1)"}, "come from no DataLoader"),
        ({"WRAPPED": "DDP(model) if world > 1 else 1 / 0"}, "ZeroDivisionError: division by zero"),
        ({"BACKWARD": "(loss * float('nan')).backward()"}, "nan or infinite"),
        ({"LR": "1e-2 * world"}, "its learning rate is 0.01 instead of 0.02"),
        (
            {"LOADER": "collate_fn=lambda items: type('Own', (), {'pair': stacked(items)})"}
            | {"UNPACKED": "batch.pair"},
            "which cannot be kept",
        ),
        (
            {"LOADER": "collate_fn=lambda items: (*stacked(items), torch.zeros(1).expand(2**27))"}
            | {"UNPACKED": "batch[:2]"},
            "too large to be kept",
        ),
        ({"BACKWARD": "model(x + torch.rand_like(x)).mean().backward()"}, "no DataLoader"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_compared_is_not_judged(parts, why, train):
    report = train(**parts)
    assert any(why in words for words in report.not_seen), report
    assert [f for f in report.findings if f.level != NOTE] == []


def test_an_optimizer_of_weights_that_fsdp_has_freed_is_named(train):
    """Between a forward pass and the next backward, parameters are those of the whole unit."""
    report = train(WRAPPED="fully_shard(model); model(torch.ones(1, 6))")
    assert "optimizer-before-sharding" in [f.rule for f in report.findings], report
    assert report.ending == ""


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        (OWN_ROWS | {"WRAPPED": "model", "BACKWARD": BY_HAND}, "gradient-scaled"),
        (OWN_ROWS | {"WRAPPED": "model", "BACKWARD": f"loss = loss / world; {BY_HAND}"}, None),
        (NEEDS_TWO | {"BACKWARD": "(loss * world).backward()"}, "gradient-scaled"),
        (NEEDS_TWO | {"BACKWARD": "loss /= world; loss.backward()"}, "gradient-scaled"),
        (NEEDS_TWO | {"BACKWARD": "loss = loss * 2; loss.backward()"}, None),
        (NEEDS_TWO, None),
    ],
)
def test_without_one_process_the_gradients_of_the_ranks_are_judged(parts, named, train):
    """Rows from no loader, or an error on one rank: a factor is named if nobody can mean it."""
    report = train(**parts)
    assert any("the gradient of one process:" in words for words in report.not_seen)
    assert [f.rule for f in report.findings if f.level != NOTE] == [named] * bool(named), report
    assert any("mean of what the ranks compute" in words for words in report.looked_at)


def test_an_optimizer_of_ones_own_is_no_missing_step(train):
    """Weights change, though no optimizer of PyTorch steps."""
    by_hand = "[p.data.sub_(1e-2 * p.grad) for p in model.parameters()]"
    report = train(BACKWARD=f"loss.backward(); {by_hand}; optimizer.zero_grad(); continue")
    assert [f for f in report.findings if f.level != NOTE] == [], report


def test_parameters_that_are_too_large_are_left_out_and_said(train):
    """The rest is compared; if nothing is left, nothing is claimed."""
    limit = "DDP(model); from manyranks.script_doctor import step_records"
    limit += "; step_records.MAX_STEP_BYTES = {}"
    report = train(DROP="nn.Linear(16, 16)", WRAPPED=limit.format(1000))
    assert "in 5 of 6 parameters)" in report.looked_at[0], report
    report = train(WRAPPED=limit.format(3))
    assert any("small enough to be kept" in words for words in report.not_seen), report
    assert not any(EQUAL in words for words in report.looked_at)


def test_replicas_in_groups_of_ranks_are_not_judged(train):
    """Two models on four ranks, each averaged over two: meant, as with experts."""
    groups = "[dist.new_group(pair) for pair in ([0, 1], [2, 3])][rank // 2]"
    report = train(ranks=4, WRAPPED=f"DDP(model, process_group={groups}) if world > 1 else model")
    assert [f for f in report.findings if f.level != NOTE] == [], report


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("register_buffer('mean', torch.zeros(1))", "1 of its buffers differ, such as 2.mean"),
        ("mean = torch.zeros(1)", "1 tensor that it keeps beside them and its buffers, such as 2."),
    ],
)
def test_what_nothing_broadcasts_is_noted(keep, said, train):
    """Each rank keeps the mean of its own rows in a model whose gradients are averaged by hand."""
    report = train(
        DROP="Attention()",
        WRAPPED=f"model; torch.manual_seed(rank); model[2].{keep}",
        BACKWARD=f"model[2].mean.add_(y.mean()); loss /= world; {BY_HAND}",
    )
    (finding,) = report.findings
    assert (finding.rule, finding.level) == ("replicas-differ", NOTE), report
    assert said in finding.fact


def test_a_note_of_the_comparison_is_no_exit_code(train):
    assert train(BACKWARD="(loss + model(x).std()).backward()").exit_code == 0
    assert train(BACKWARD="(loss * world).backward()").exit_code == 1


# Batches


class Point(NamedTuple):
    """A batch with names."""

    x: torch.Tensor
    name: str


@dataclasses.dataclass
class Record:
    """A batch of a type of its own."""

    parts: list
    number: int


def test_batches_come_back_as_they_were():
    batch = [Point(torch.ones(2, 3), "a"), Record([None, 2.5], 3), {"t": (torch.zeros(1), b"x")}]
    again = from_plain(as_plain(batch))
    assert json.dumps(repr(again)) == json.dumps(repr(batch))
    with pytest.raises(CannotJoin, match="a batch holds a value of type object, which"):
        from_plain(as_plain({"what": object()}))


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        ([torch.ones(2, 1), torch.zeros(1, 1)], [[1.0], [1.0], [0.0]]),
        ([{"x": torch.ones(1), "n": 3}, {"x": torch.zeros(1), "n": 3}], {"x": [1.0, 0.0], "n": 3}),
        ([["a", "b"], ["c"]], ["a", "b", "c"]),
        ([[(1, "a"), (2, "b")], [(3, "c"), (4, "d")]], [(1, "a"), (2, "b"), (3, "c"), (4, "d")]),
        ([(torch.ones(2), None), (torch.zeros(2), None)], ([1.0, 1.0, 0.0, 0.0], None)),
    ],
)
def test_batches_of_ranks_are_joined(parts, joined):
    def values(batch):
        if isinstance(batch, torch.Tensor):
            return batch.tolist()
        if isinstance(batch, dict):
            return {key: values(part) for key, part in batch.items()}
        return type(batch)(map(values, batch)) if isinstance(batch, list | tuple) else batch

    assert values(join(parts, samples=2)) == joined


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([torch.ones(2, 3), torch.ones(2, 4)], r"shapes that do not fit together: \[2, 3\] and"),
        ([torch.tensor(1.0), torch.tensor(2.0)], "hold 1.0 and 2.0"),
        ([{"x": 1}, {"y": 1}], "different keys"),
        ([(torch.ones(2), 3), (torch.ones(2), 4)], "hold 3 and 4"),
        ([torch.ones(2), [torch.ones(2)]], "of different types"),
    ],
)
def test_what_cannot_be_joined_says_why(parts, why):
    with pytest.raises(CannotJoin, match=why):
        join(parts)
