"""Every chapter's worker against one process, and what each one promises besides."""

import ast
import inspect
import os
import re
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ddp_workbook import launch
from ddp_workbook.chapters import (
    checkpoint_and_recover,
    collectives,
    data_parallel,
    distributed_data_parallel,
    fully_sharded,
    fully_sharded_by_hand,
    make_it_fast,
    many_machines,
    model_parallel,
    process_groups,
    samplers,
    single_process,
    when_it_hangs,
)
from ddp_workbook.chapters.digits import DigitsMLP, Result
from ddp_workbook.experiments.fully_sharded import one_process as transformer
from ddp_workbook.experiments.model_parallel import one_process as uncut
from ddp_workbook.page.code_diff import what_changed
from ddp_workbook.page.pages import all_pages

NOTEBOOKS = all_pages()
CHAPTERS = [
    single_process,
    data_parallel,
    distributed_data_parallel,
    process_groups,
    samplers,
    collectives,
    fully_sharded_by_hand,
    fully_sharded,
    many_machines,
    checkpoint_and_recover,
    when_it_hangs,
    make_it_fast,
    model_parallel,
]
COMMON = {"digits", "training_run", "results"}  # what all chapters import
PARTS = {"checkpointing", "locking", "stopping"}  # of checkpoint_and_recover
SHARDED = CHAPTERS[6:8]  # a transformer and AdamW
CUT = CHAPTERS[12:]  # a transformer and SGD
WITH_THE_MLP = [*CHAPTERS[:6], *CHAPTERS[8:12]]
REPLICATED = [*CHAPTERS[2:6], *CHAPTERS[8:12]]
ON_RANKS = REPLICATED + SHARDED + CUT
CPUS = [torch.device("cpu")] * 8
SHARED = ["EPOCHS", "BATCH_SIZE", "WIDTH", "SEED"]
# Of the 1,797 rows the last batch has 5 (not every rank of 4 has as many), 1 (three have none), 0.
RUNS = [
    {},
    {"epochs": 3, "batch_size": 449},
    {"epochs": 3, "batch_size": 599},
    {"epochs": 1, "batch_size": 100, "width": 32, "depth": 3},
    {"epochs": 0},
]
# A sampler gives every rank equally many rows: the number of ranks must divide the batch size.
RUNS_OF_SAMPLERS = [
    {"batch_size": 60},
    {"epochs": 2, "batch_size": 1796},
    {"epochs": 1, "batch_size": 12, "width": 32, "depth": 3},
    {"epochs": 0, "batch_size": 12},
]
# 20 steps, the last one with 87 rows; last batches of 1 and of 0 rows as above.
SMALL = {"width": 16, "depth": 1}
RUNS_OF_SHARDED = [
    {"epochs": 1, "batch_size": 90},
    {"epochs": 2, "batch_size": 449} | SMALL,
    {"epochs": 1, "batch_size": 599} | SMALL,
    {"epochs": 1, "batch_size": 200, "width": 32, "depth": 2},
    {"epochs": 0} | SMALL,
]
OWN_RUNS = {
    samplers: RUNS_OF_SAMPLERS,
    checkpoint_and_recover: RUNS_OF_SAMPLERS,
    when_it_hangs: RUNS_OF_SAMPLERS,
    many_machines: [{}, {"epochs": 0}],
}
OWN_RUNS |= dict.fromkeys(SHARDED, RUNS_OF_SHARDED)
# All ranks share the batches here; test_model_parallel.py cuts. Each rank has 4 micro-batches.
RUNS_OF_CUT = [{"epochs": 1, "batch_size": 240}, {"epochs": 1, "batch_size": 576} | SMALL]
OWN_RUNS |= dict.fromkeys(CUT, RUNS_OF_CUT)
CASES = [
    (chapter, ranks, run)
    for chapter in ON_RANKS
    for run in OWN_RUNS.get(chapter, RUNS)
    for ranks in (1, 2, 3, 4)
    if OWN_RUNS.get(chapter) is not RUNS_OF_SAMPLERS or run["batch_size"] % ranks == 0
]


def with_level(case: tuple):
    """Each chapter on 4 ranks once, with batches that they do not share equally, where it has them.

    For a push on 2 ranks as well, and with all odd batches on 4: 3 ranks show nothing else. A rank
    alone is compared below.
    """
    chapter, ranks, run = case
    runs, kind = OWN_RUNS.get(chapter, RUNS), "training runs of the chapters"
    uneven = runs[2] if runs is RUNS_OF_SAMPLERS else runs[min(1, len(runs) - 2)]
    if ranks == 4 and run == uneven:
        return pytest.param(*case)
    push = ranks == 4 or (ranks == 2 and run == runs[0])
    return pytest.param(*case, marks=(pytest.mark.push if push else pytest.mark.release)(kind))


def stem(value: object) -> str | None:
    """A chapter's name in the name of a test."""
    return value.__name__.rpartition(".")[2] if inspect.ismodule(value) else str(value)


@pytest.fixture(autouse=True)
def one_thread():
    """The small steps here gain nothing from more threads, and on a busy machine they lose much."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def one_process(chapter=single_process, **run) -> Result:
    """What this chapter's ranks must equal."""
    train = single_process.train
    if chapter in (*SHARDED, *CUT):
        train = (uncut if chapter in CUT else transformer).one_process
    return train(**run)


def assert_same(result: Result, expected: Result) -> None:
    """Equal up to rounding: 9e-7 is the largest difference seen, with AdamW's weights 2e-5.

    AdamW divides each gradient by its own size, which makes rounding in a tiny one visible.
    """
    atol = 2e-4 if "blocks.0.norm_1.weight" in expected.weights else 5e-6
    assert result.losses == pytest.approx(expected.losses, abs=5e-6)
    assert result.accuracy == pytest.approx(expected.accuracy, abs=2 / 1797)
    torch.testing.assert_close(result.weights, expected.weights, rtol=0, atol=atol)


def whole_gradient(model: nn.Module, images, labels) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Loss and gradients of the whole batch, by plain autograd."""
    loss = F.cross_entropy(model(images), labels)
    return loss.detach(), list(torch.autograd.grad(loss, list(model.parameters())))


def some_digits(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    images = torch.rand(rows, 64, generator=generator)
    return images, torch.randint(10, (rows,), generator=generator)


# Equal to one process


def test_one_process_learns_and_does_so_again_the_same_way():
    result = single_process.train()
    assert len(result.losses) == single_process.EPOCHS * 29
    assert result.losses[0] == pytest.approx(2.3, abs=0.1)  # log(10): it knows nothing yet
    assert result.accuracy > 0.9
    torch.testing.assert_close(result, single_process.train(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("replicas", "run"), [(1, {}), (2, {}), *((4, run) for run in RUNS)], ids=str
)
def test_data_parallel_equals_one_process(replicas, run):
    assert_same(data_parallel.train(**run, replicas=replicas), one_process(**run))


@pytest.mark.parametrize(("chapter", "ranks", "run"), [with_level(c) for c in CASES], ids=stem)
def test_ranks_equal_one_process(chapter, ranks, run):
    """The same training, and the very same weights on every rank."""
    first, *others = launch(chapter.train, ranks=ranks, timeout=120, **run)
    assert_same(first, one_process(chapter, **run))
    for other in others:
        torch.testing.assert_close(other, first, rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("chapter", "ranks", "run"),
    [case for case in CASES if case[1] == 2] + [(data_parallel, 2, run) for run in RUNS],
    ids=stem,
)
def test_two_gpus_equal_one(chapter, ranks, run):
    expected = one_process(chapter, **run)
    alone = chapter is data_parallel
    for result in [chapter.train(**run)] if alone else launch(chapter.train, ranks=ranks, **run):
        assert result.losses == pytest.approx(expected.losses, abs=1e-3)
        if chapter not in SHARDED:  # there the rounding of another device shows, see assert_same
            torch.testing.assert_close(result.weights, expected.weights, rtol=0, atol=1e-3)


# The step from chapter to chapter


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (0, 1),
        (1, 2),
        (0, 2),
        (2, 3),
        (2, 4),
        (2, 5),
        (2, 6),
        (2, 7),
        (6, 7),
        (2, 8),
        (4, 10),
        (2, 11),
    ],
)
def test_train_changes_little_from_chapter_to_chapter(old, new):
    assert 0 < what_changed(CHAPTERS[old].train, CHAPTERS[new].train).changed_lines <= 16


def test_saving_changes_little_too():
    """And four lines more, which stand one level further out: one loop over all epochs."""
    assert 0 < what_changed(samplers.train, checkpoint_and_recover.train).changed_lines <= 20 + 4


def test_cutting_changes_little_too():
    """And four lines more: two options, and at the end the whole model, which no rank has."""
    assert 0 < what_changed(fully_sharded.train, model_parallel.train).changed_lines <= 16 + 4


def test_the_files_end_alike():
    """So that no chapter shows a change there."""
    ends = [inspect.getsource(chapter).partition("\nif __name__")[2] for chapter in CHAPTERS]
    assert set(ends) == {' == "__main__":\n    run(train)\n'}


@pytest.mark.parametrize("chapter", CHAPTERS, ids=stem)
def test_a_chapter_imports_from_earlier_chapters_alone(chapter):
    """In the order of the list above, which is that of the pages."""
    order = [stem(chapter) for chapter in CHAPTERS]
    pages = [path.stem.partition("_")[2] for path in NOTEBOOKS]
    assert [one for one in order if one in pages] == [one for one in pages if one in order]
    imports = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(chapter)))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = {name for node in imports for name in re.findall(r"chapters\.(\w+)", ast.unparse(node))}
    helpers = COMMON | (PARTS if chapter is checkpoint_and_recover else set())
    assert names <= set(order[: order.index(stem(chapter))]) | helpers


@pytest.mark.parametrize(
    ("chapters", "names"),
    [
        (WITH_THE_MLP, [*SHARED, "DEPTH", "LEARNING_RATE", "MOMENTUM"]),
        (SHARDED, [*SHARED, "DEPTH", "LEARNING_RATE", "MAX_NORM"]),
        (CHAPTERS, SHARED),
    ],
)
def test_the_chapters_share_their_constants(chapters, names):
    """All have the same batches; those with one model and optimizer also their settings."""
    assert len({tuple(getattr(chapter, name) for name in names) for chapter in chapters}) == 1


# The files, started as a reader starts them


def run_file(chapter, *starter: str, **run: int) -> subprocess.CompletedProcess:
    options = [f"--{name.replace('_', '-')}={number}" for name, number in run.items()]
    return subprocess.run(
        [sys.executable, *starter, chapter.__file__, *options],
        capture_output=True,
        text=True,
        timeout=100,
        # Two threads that wait for each other on a busy machine take ten times as long as one.
        env={name: value for name, value in os.environ.items() if "RANK" not in name}
        | {"OMP_NUM_THREADS": "1"},
    )


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


# Of those that end alike (see above), the first, one of each kind.
SOME = (distributed_data_parallel, fully_sharded, many_machines)
FOR_A_PUSH = pytest.mark.push("torchrun again")
OTHERS = pytest.mark.release("the other chapters under torchrun")


@pytest.mark.parametrize(
    ("chapter", "starter"),
    [
        pytest.param(single_process, (), marks=pytest.mark.long),
        pytest.param(data_parallel, (), marks=FOR_A_PUSH),
        pytest.param(fully_sharded, (), marks=FOR_A_PUSH),
        *(pytest.param(c, TORCHRUN, marks=FOR_A_PUSH if c in SOME else OTHERS) for c in ON_RANKS),
    ],
    ids=stem,
)
def test_the_file_runs_and_reports(chapter, starter):
    """On rank 0 alone; without options where that takes no time: one process, the smaller model."""
    short = {} if chapter in WITH_THE_MLP and not starter else {"epochs": 2, "batch_size": 448}
    short |= SMALL if chapter in (*SHARDED, *CUT) else {}
    run_result = run_file(chapter, *starter, **short)
    assert run_result.returncode == 0, run_result.stderr
    expected = (
        one_process(chapter, **short).report(short.get("epochs", chapter.EPOCHS)).splitlines()
    )
    lines = [line for line in run_result.stdout.splitlines() if not line.startswith("rank ")]
    # Unbuffered Python writes a line's end apart, and two processes share this pipe.
    assert "".join(lines) == "".join(expected)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=stem)
def test_the_docstring_names_the_command_that_runs_the_file(chapter):
    assert f" src/ddp_workbook/chapters/{stem(chapter)}.py\n" in chapter.__doc__


@pytest.mark.parametrize("chapter", ON_RANKS, ids=stem)
def test_train_leaves_no_process_group_behind_and_can_run_again(chapter):
    run = {"epochs": 1, "batch_size": 448} | (SMALL if chapter in (*SHARDED, *CUT) else {})
    assert_same(chapter.train(**run), one_process(chapter, **run))
    assert not dist.is_initialized()
    assert "RANK" not in os.environ
    chapter.train(**run | {"epochs": 0})


@pytest.mark.push("training runs of the chapters")
@pytest.mark.parametrize(
    "chapter", [one for one in REPLICATED if "DistributedDataParallel" in vars(one)], ids=stem
)
def test_train_comes_to_an_end_every_time(chapter):
    """Without `del ddp` about one launch in twelve hung here, in the destructor of gloo's group."""
    for _ in range(15):
        launch(chapter.train, ranks=3, timeout=30, epochs=0, batch_size=12)


# Chapter 01: the four operations


@pytest.mark.parametrize(
    ("rows", "devices", "sizes"),
    [
        (10, 4, [3, 3, 3, 1]),
        (5, 4, [2, 2, 1]),
        (9, 4, [3, 3, 3]),
        (1, 4, [1]),
        (8, 2, [4, 4]),
        (7, 1, [7]),
    ],
)
def test_scatter_cuts_as_data_parallel_does(rows, devices, sizes):
    images, labels = some_digits(rows)
    pieces = data_parallel.scatter(images, labels, CPUS[:devices])
    assert [len(piece) for piece, _ in pieces] == sizes
    assert torch.equal(torch.cat([piece for piece, _ in pieces]), images)
    assert torch.equal(torch.cat([piece for _, piece in pieces]), labels)


def test_replicate_copies_the_weights_of_this_very_moment():
    model = DigitsMLP(8)
    same, copy = data_parallel.replicate(model, CPUS[:2])
    assert same is model
    torch.testing.assert_close(copy.state_dict(), model.state_dict(), rtol=0, atol=0)
    with torch.no_grad():
        model.output.bias += 1
    _, later = data_parallel.replicate(model, CPUS[:2])
    assert torch.equal(later.output.bias, model.output.bias)
    assert not torch.equal(copy.output.bias, model.output.bias)


def test_gradients_are_added_to_those_already_there():
    model = DigitsMLP(16)
    images, labels = some_digits(10)
    _, gradients = whole_gradient(model, images, labels)
    for _ in range(2):
        data_parallel.forward_and_backward(model, images, labels, CPUS[:4])
    twice = [2 * gradient for gradient in gradients]
    torch.testing.assert_close([weight.grad for weight in model.parameters()], twice)


def test_a_parameter_that_only_another_replica_used_gets_its_gradient():
    class UsesTheOutputForOnesOnly(DigitsMLP):
        def forward(self, images):
            if images[0, 0] == 1:
                return super().forward(images)
            return images[:, :10] * self.hidden[0].bias.sum()

    model = UsesTheOutputForOnesOnly(8)
    images = torch.cat([torch.zeros(2, 64), torch.ones(2, 64)])
    data_parallel.forward_and_backward(model, images, torch.tensor([1, 2, 3, 4]), CPUS[:2])
    assert model.output.weight.grad.abs().sum() > 0


def test_batch_norm_keeps_the_statistics_of_the_first_replica_alone():
    model = nn.Sequential(nn.BatchNorm1d(64, momentum=1.0), nn.Linear(64, 10))
    images, labels = some_digits(12)
    data_parallel.forward_and_backward(model, images, labels, CPUS[:3])
    torch.testing.assert_close(model[0].running_mean, images[:4].mean(0))


def test_the_exception_of_a_replica_is_passed_on():
    class Refuses(nn.Linear):
        def forward(self, images):
            if len(images) == 1:
                raise ZeroDivisionError("one row is too few")
            return super().forward(images)

    torch.set_num_threads(4)
    with pytest.raises(ZeroDivisionError, match="one row is too few"):
        data_parallel.forward_and_backward(Refuses(64, 10), *some_digits(10), CPUS[:4])
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize(
    ("gpus", "replicas", "device"),
    [(0, 2, "cpu"), (1, 1, "cpu"), (1, 2, "cpu"), (2, 2, "cuda"), (2, 3, "cpu"), (8, 4, "cuda")],
)
def test_replicas_are_on_gpus_where_there_are_two_and_enough(monkeypatch, gpus, replicas, device):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    devices = data_parallel.pick_devices(replicas)
    assert [d.type for d in devices] == [device] * replicas
    assert device == "cpu" or [d.index for d in devices] == list(range(replicas))


def test_on_gpus_the_step_is_data_parallels_own(monkeypatch):
    """No GPU needed: a double shows what nn.DataParallel is given and that its outputs count."""
    given = []

    def wrap(model, devices):
        given.append(devices)
        return model

    monkeypatch.setattr(nn, "DataParallel", wrap)
    model = DigitsMLP(16)
    images, labels = some_digits(10)
    loss, gradients = whole_gradient(model, images, labels)
    gpus = (torch.device("cuda", 0), torch.device("cuda", 1))
    got = data_parallel.forward_and_backward(model, images, labels, gpus)
    assert given == [list(gpus)]
    torch.testing.assert_close(got, loss)
    torch.testing.assert_close([weight.grad for weight in model.parameters()], gradients)


def test_small_pieces_get_a_thread_each_too(monkeypatch):
    """A thread that is done before the next piece is handed out must not take that one as well."""
    run_replica, model = data_parallel.run_replica, DigitsMLP()
    images, labels = torch.randn(8, 64), torch.zeros(8, dtype=torch.long)
    for _ in range(200):
        threads = []

        def recorder(*args, threads=threads):
            threads.append(threading.get_ident())
            return run_replica(*args)

        monkeypatch.setattr(data_parallel, "run_replica", recorder)
        data_parallel.forward_and_backward(model, images, labels, CPUS[:4])
        assert len(set(threads)) == 4


def test_each_replica_thread_is_told_its_number_of_threads(monkeypatch):
    """A new thread has no setting: a matrix product in it would use all cores.

    All replicas are at work at the same time, or they would not meet here.
    """
    set_threads, told, meeting = torch.set_num_threads, {}, threading.Barrier(3)

    def recorder(number):
        told[threading.get_ident()] = number
        if threading.current_thread() is not threading.main_thread():
            meeting.wait(timeout=10)
        set_threads(number)

    images, labels = torch.randn(9, 64), torch.zeros(9, dtype=torch.long)
    torch.set_num_threads(6)
    monkeypatch.setattr(torch, "set_num_threads", recorder)
    data_parallel.forward_and_backward(DigitsMLP(), images, labels, CPUS[:3])
    assert told.pop(threading.get_ident()) == 6  # put back
    assert list(told.values()) == [2, 2, 2]


# Chapter 02: processes


@pytest.mark.parametrize(
    ("gpus", "local_world_size", "device"),
    [(0, 2, "cpu"), (1, 1, "cuda:0"), (1, 2, "cpu"), (2, 2, "cuda:1"), (8, 4, "cuda:3")],
)
def test_a_rank_takes_its_own_gpu_only_if_all_have_one(monkeypatch, gpus, local_world_size, device):
    chosen = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **_: chosen.append(backend))
    monkeypatch.setenv("LOCAL_RANK", str(local_world_size - 1))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local_world_size))
    assert str(distributed_data_parallel.setup()) == device
    assert chosen == (["gloo"] if device == "cpu" else [torch.device(device), "nccl"])


def test_every_chapters_file_is_in_the_list_above():
    """A new chapter is held to all of these tests, or this one fails."""
    files = {path.stem for path in Path(single_process.__file__).parent.glob("*.py")}
    files -= {"__init__", "fully_sharded_real_run", *COMMON, *PARTS}  # test_real_run.py is its own
    assert files == {Path(chapter.__file__).stem for chapter in CHAPTERS}
