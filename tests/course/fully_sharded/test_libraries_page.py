"""06_further_libraries: one training in four forms, and a file's weights in a sharded model."""

import dataclasses
import importlib
import re
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
import torch

from ddp_workbook.chapters.digits import DigitsTransformer, furthest
from ddp_workbook.experiments.fully_sharded import libraries, loops, pretrained
from ddp_workbook.page.pages import FOLDER, place_of
from manyranks.launcher.launch import launch
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tests.workers import other_libraries
from tools import book

pytestmark = pytest.mark.push("other libraries")

PAGE = FOLDER / place_of("06_further_libraries")
LIMIT = 300  # seconds; beside other work a rank needs 30 to import a library
TABLE = next(
    cell.source for cell in nbformat.read(PAGE, as_version=4).cells if cell.id == "calls"
).splitlines()
NAMES = {  # column of the page's table -> where its names are at home
    2: ("accelerate", "accelerate.utils"),
    3: ("lightning.fabric", "lightning.fabric.strategies"),
    4: ("transformers",),
}
with_libraries = pytest.mark.skipif(
    find_spec("lightning") is None, reason="TORCH=site leaves out what would bring a second torch"
)


@pytest.fixture(scope="module", params=libraries.FORMS)
def run_again(request) -> tuple[dict, dict]:
    """What was recorded of a library, and what happens now."""
    return libraries.read_results()[request.param], libraries.run(request.param)


@with_libraries
def test_what_was_recorded_happens_now(run_again):
    """Rows, steps, calls, bytes and files are equal; weights and accuracy within rounding."""
    then, now = (found["forms"] for found in run_again)
    close = {"furthest": 1e-3, "accuracy": 0.02}
    assert now.keys() == then.keys()
    for what, form in now.items():
        exact = {key: value for key, value in form.items() if key not in close}
        assert exact == {key: value for key, value in then[what].items() if key not in close}
        assert {k: form[k] for k in close} == {
            k: pytest.approx(then[what][k], abs=within) for k, within in close.items()
        }


@with_libraries
def test_as_printed_the_weights_are_those_of_the_loop_by_hand(run_again):
    """And of the other forms only dispatch_batches changes nothing; every file can be read."""
    for what, form in run_again[1]["forms"].items():
        same = what in (libraries.AS_PRINTED, "dispatch_batches=True as well")
        assert (form["furthest"] < 1e-6) is same, what
        assert form["off_file"] == 0


@with_libraries
def test_in_a_step_only_gradients_are_sent():
    """Each form all-reduces as often and as much as DDP by hand, and never a micro-batch."""
    size = 4 * sum(p.numel() for p in loops.DigitsMLP().parameters())
    for result in libraries.read_results().values():
        wire = result["forms"][libraries.AS_PRINTED]["wire"]
        (reduced,) = [row for row in wire if row["op"] == "all_reduce" and row["bytes"] > size]
        assert (reduced["calls"], reduced["bytes"]) == (24, 24 * size)


def test_without_the_libraries_the_page_runs_and_says_so(tmp_path):
    """One sentence for each library, and the recorded results in place of its own."""
    place = book.copy_layout(tmp_path / "checkout") / place_of(PAGE.stem)
    notebook = nbformat.read(place, as_version=4)
    (imports,) = (cell for cell in notebook.cells if cell.id == "imports")
    imports.source += "\ndemos.libraries.is_installed = lambda package: False"
    nbformat.write(notebook, place)
    done = book.execute(place)
    assert book.errors(done) == []
    shown = {cell.id: str(cell.outputs) for cell in done.cells if cell.cell_type == "code"}
    for library, package in libraries.PACKAGES.items():
        output = shown[f"{library.lower()}-run"]
        assert f"{package} is not installed here, so this was recorded, with {package} " in output
        assert "all_reduce" in output


# The page's table


def names(column: int) -> set[str]:
    """The words in backticks in this column, without what follows their first bracket."""
    rows = [line.split("|") for line in TABLE if line.startswith("| ")][1:]
    found = {name for row in rows for name in re.findall(r"`([\w.]+)[^`]*`", row[column])}
    assert len(rows) == 11 and len(found) > 5
    return found


@with_libraries
@pytest.mark.parametrize("column", NAMES)
def test_each_call_of_the_table_exists(column):
    """As a method, a class, or an argument of TrainingArguments or DataLoaderConfiguration."""
    modules = [importlib.import_module(name) for name in NAMES[column]]
    arguments = {
        field.name
        for module in modules
        for owner in ("TrainingArguments", "DataLoaderConfiguration")
        if hasattr(module, owner)
        for field in dataclasses.fields(getattr(module, owner))
    } | {"prepare"}
    for name in names(column) - arguments:
        first, *rest = name.split(".")
        owners = [getattr(module, first) for module in modules if hasattr(module, first)]
        assert owners, name
        assert not rest or hasattr(owners[0], rest[0]), name


@with_libraries
def test_defaults_of_the_trainer_are_as_the_page_says():
    from transformers import TrainingArguments

    default = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    assert (default["seed"], default["max_grad_norm"]) == (42, 1.0)
    assert default["lr_scheduler_type"] == "linear"
    assert str(default["optim"]).lower().rpartition(".")[2].startswith("adamw")


# The page's mistakes


@with_libraries
@pytest.mark.skipif(torch.cuda.is_available(), reason="the libraries find the GPUs")
def test_without_a_word_about_the_cpu_each_rank_trains_alone():
    assert launch(other_libraries.ranks_by_library, ranks=2, timeout=LIMIT) == [[1, 1, 1]] * 2


@with_libraries
def test_a_prepared_scheduler_steps_once_for_each_rank():
    """Unless split_batches=True."""
    assert launch(other_libraries.steps_of_a_scheduler, ranks=2, timeout=LIMIT) == [[2, 1]] * 2


@with_libraries
def test_a_forward_that_takes_anything_gets_gradients_that_are_too_large(tmp_path):
    """Micro-batches x ranks times: a learning rate that is as much lower makes up for it."""
    worker = other_libraries.trainer_that_takes_anything
    plain, lower = launch(worker, tmp_path, ranks=2, timeout=LIMIT)[0]
    assert furthest(plain, lower) < 1e-6


@with_libraries
def test_the_trainer_writes_a_pickle(tmp_path):
    """Which torch.load refuses."""
    launch(loops.with_trainer, tmp_path, ranks=2, timeout=LIMIT)
    (file, *_) = tmp_path.rglob("training_args.bin")
    with pytest.raises(Exception, match="weights_only"):
        torch.load(file, weights_only=True)


# Pretrained weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model in a file, and as shards."""
    place = tmp_path_factory.mktemp("pretrained")
    pretrained.save(place)
    return place


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_every_way_fills_the_model(folder, ranks):
    """With exactly what is in the file, also where the rows do not divide."""
    weights = torch.load(folder / "model.pt", weights_only=True)
    for found in pretrained.ways(folder, ranks):
        assert [furthest(one.weights, weights) for one in found.values()] == [0] * 5


def test_what_each_way_holds_and_sends(folder):
    """The page's list, in numbers."""
    found = pretrained.ways(folder, ranks=4)
    size = sum(4 * p.numel() for p in DigitsTransformer(64, 3).parameters()) / 1000
    largest = max(4 * p.numel() for p in DigitsTransformer(64, 3).parameters()) / 1000
    shard = found[0]["DCP reads"].shards / 1000
    table = pretrained.table(found)
    assert table.loc["every rank reads", "rank 0 holds":"another holds"].min() > size + shard
    assert table.loc["rank 0 broadcasts", "rank 0 holds"] >= size + shard
    for way in ("rank 0 broadcasts", "rank 0 scatters", "DCP reads"):
        assert shard < table.loc[way, "another holds"] < shard + largest + 4
    assert table.loc["rank 0 scatters", "rank 0 holds"] < shard + 4
    assert table.loc["each takes its rows", "rank 0 holds":"another holds"].max() < shard + 4
    received = table["another receives"]
    assert received["rank 0 broadcasts"] == pytest.approx(size, abs=0.1)
    for way in ("every rank reads", "rank 0 scatters"):
        assert received[way] == pytest.approx(shard, abs=1)
    assert list(received[["each takes its rows", "DCP reads"]]) == [0, 0]
    alt = pretrained.bars(found).alt
    assert f"each takes its rows: parameters {shard:.0f}, mapped file {size:.0f}" in alt


@pytest.mark.parametrize("way", pretrained.WAYS)
def test_a_filled_model_trains_like_a_plain_one(folder, way):
    """The same gradients as one process, after any of the ways."""
    for apart in launch(other_libraries.gradients_apart, folder, way, ranks=2, timeout=LIMIT):
        assert apart < 1e-6


@pytest.mark.skipif(not other_libraries.STATUS.exists(), reason="asks Linux")
def test_a_mapped_file_takes_no_memory_of_its_own(tmp_path):
    """By the system's count: a rank gains its half of the model, not the whole."""
    pretrained.save(tmp_path, width=512, depth=4)
    size = sum(4 * p.numel() for p in DigitsTransformer(512, 4).parameters())
    worker = other_libraries.peak_memory_gain
    mapped = launch(worker, tmp_path, "each takes its rows", 512, 4, ranks=2, timeout=LIMIT)
    whole = launch(worker, tmp_path, "every rank reads", 512, 4, ranks=2, timeout=LIMIT)
    assert max(mapped) < 0.8 * size
    assert min(whole) > 1.2 * size


@with_libraries
def test_dcp_reads_a_safetensors_file_in_the_same_way(folder, tmp_path):
    """HuggingFaceStorageReader: the same weights, no tensor is sent, few are whole at a time."""
    from safetensors.torch import save_file

    weights = torch.load(folder / "model.pt", weights_only=True)
    save_file(weights, tmp_path / "model.safetensors")
    ways = {"safetensors": other_libraries.from_safetensors}
    for found in launch(pretrained.measure_ways, tmp_path, ways, ranks=4, timeout=LIMIT):
        one = found["safetensors"]
        assert furthest(one.weights, weights) == 0
        assert not [row for row in one.wire if row["dtype"].startswith("float")]
        # What the reader has let go of may wait a moment for the garbage collector.
        assert one.peak < one.shards + 2 * max(tensor.nbytes for tensor in weights.values())
