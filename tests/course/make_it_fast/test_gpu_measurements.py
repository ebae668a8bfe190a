"""What `make gpu` measures: every case on a CPU at tiny sizes, and on a GPU if there is one."""

import json
from functools import cache

import pandas as pd
import pytest
import torch

from ddp_workbook.chapters.digits import DigitsTransformer
from ddp_workbook.chapters.fully_sharded_real_run import Settings
from ddp_workbook.experiments import one_gpu
from ddp_workbook.experiments.data_parallel.step_times import Size
from ddp_workbook.page.pages import FOLDER, place_of

pytestmark = pytest.mark.push("the GPU's measurements on a CPU")

TINY = Size(32, 2, 4)
SMALLER = {
    "memory": {"sizes": [TINY]},
    "activations": {"size": TINY, "batches": [4, 8], "rounds": 2},
    "precision": {"sizes": [TINY], "rounds": 2},
    "one_rank": {"sizes": [TINY], "rounds": 2},
    "real_run": {"settings": Settings(batch=2), "backend": "eager", "rounds": 2},
    "copies": {"mebibytes": [1], "rounds": 2},
}
CPU = torch.device("cpu")
ON_A_GPU = pytest.param(
    torch.device("cuda", 0),
    # Another torch may have news that this pin has not: here they are no failure.
    marks=[pytest.mark.gpu1, pytest.mark.filterwarnings("default")],
    id="gpu",
)
each_device = pytest.mark.parametrize("device", [pytest.param(CPU, id="cpu"), ON_A_GPU])


@cache
def tiny_rows(name: str, device: torch.device) -> pd.DataFrame:
    """The rows at tiny sizes, measured once: the ledger takes seconds."""
    return rows_of(name, device)


def rows_of(name: str, device: torch.device, **more) -> pd.DataFrame:
    """The rows of a measurement, none of whose cases fails."""
    rows, failed = one_gpu.run_cases(one_gpu.MEASUREMENTS[name](device, **SMALLER[name] | more))
    assert failed == {}
    return pd.DataFrame(rows)


@each_device
@pytest.mark.parametrize("name", one_gpu.MEASUREMENTS)
@pytest.mark.filterwarnings("default:The .grad attribute")  # torch.compile's own look at a tensor
def test_every_case_fills_its_columns(name, device, tmp_path):
    """Recorded with machine and date in front, and read back; only bytes are missing on a CPU."""
    rows = tiny_rows(name, device)
    assert set(rows) == set(one_gpu.COLUMNS[name])
    one_gpu.record(name, rows.to_dict("records"), "a GPU, torch 9", tmp_path)
    found = one_gpu.recorded_gpu(name, tmp_path)
    assert list(found) == ["machine", "date", *one_gpu.COLUMNS[name]]
    assert set(found["machine"]) == {"a GPU, torch 9"}
    assert found["date"].str.fullmatch(r"\d{4}-\d\d-\d\d").all()
    empty = {column for column in found if found[column].isna().any()} - {"backend"}
    of_a_gpu = {"allocated_bytes", "peak_bytes", "activation_bytes", "mfu_percent"} & set(found)
    if device.type == "cuda":
        assert empty <= {"mfu_percent"}  # the program does not know every GPU
    else:
        assert empty == of_a_gpu
    numbers = found.select_dtypes("number")
    assert (numbers.drop(columns=list(empty)) >= 0).all(axis=None)
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.csv"]


def test_nothing_recorded_is_a_table_without_rows(tmp_path):
    """Pages show it before anybody has had a GPU; another name is refused with those there are."""
    for name in one_gpu.MEASUREMENTS:
        assert list(one_gpu.recorded_gpu(name, tmp_path)) == one_gpu._header(name)
        assert one_gpu.recorded_gpu(name, tmp_path).empty
    with pytest.raises(ValueError, match="'speed' is none of memory, activations"):
        one_gpu.recorded_gpu("speed", tmp_path)


def test_what_is_recorded_in_the_repository_fits():
    """Nothing but CSVs of measurements, with all of their columns, from a GPU."""
    for path in one_gpu.FOLDER.glob("*.csv"):
        table = one_gpu.recorded_gpu(path.stem)
        assert list(table) == one_gpu._header(path.stem)
        assert table["machine"].str.contains("CUDA").all()


def gigabytes(value: float) -> str:
    return f"{value / 1e9:.2g}"


def statements() -> dict[tuple[str, str], list[str]]:
    """Page and cell -> the figures that it states of what was recorded, from the tables."""
    wide = {name: one_gpu.recorded_gpu(name) for name in one_gpu.MEASUREMENTS}
    ways = wide["one_rank"].set_index(["width", "candidate"])
    fast = wide["precision"].set_index(["width", "candidate"])["times_as_fast"]
    kept = wide["activations"].set_index(["batch", "checkpointing"])
    runs = wide["real_run"].set_index(["checkpointing", "compiled"])
    copies = wide["copies"].query("mebibytes == 256").set_index(["host_memory", "non_blocking"])
    longer, speed = ways["times_as_long"], copies["median_gb_per_s"]
    ms, peak = runs["median_ms"], runs["peak_bytes"]
    return {
        ("02_further_does_it_pay", "gpu-look"): [
            f"{ways['median_ms'][1024, 'plain loop']:.0f} ms",
            f"{ways['median_ms'][64, 'plain loop']:.0f} ms",
            f"{longer[1024, 'DDP'] - 1:.0%}".replace("%", " % more with DDP"),
            f"{longer[1024, 'fully_shard'] - 1:.0%}".replace("%", " % with `fully_shard`"),
            f"{longer[64, 'DDP'] - 1:.0%}".replace("%", " % with DDP"),
            f"{longer[64, 'fully_shard']:.1f} times the step",
        ],
        ("02_further_mixed_precision", "gpu-look"): [
            f"{fast[1024, 'bf16 autocast']:.1f} and {fast[2048, 'bf16 autocast']:.1f} times",
            f"{fast[1024, 'TF32']:.1f} and {fast[2048, 'TF32']:.1f}:",
            f"only {fast[2048, 'bf16 autocast'] / fast[2048, 'TF32'] - 1:.0%}".replace("%", " %"),
        ],
        ("10_make_it_fast", "precision-look"): [
            f"TF32 alone is {fast[2048, 'TF32']:.1f} times as fast",
            f"only {fast[2048, 'bf16 autocast'] / fast[2048, 'TF32'] - 1:.0%}".replace("%", " %"),
        ],
        ("10_make_it_fast", "copies-look"): [
            f"{speed['pinned', False] / speed['pageable', False]:.1f} times as fast",
        ],
        ("04_further_loading_data", "pin-gpu-look"): [
            f"{copies['median_gb_per_s']['pinned', True]:.0f} GB a second",
            f"{copies['median_gb_per_s']['pageable', False]:.0f} to "
            f"{copies['median_gb_per_s']['pageable', True]:.0f} (",
            f"{copies['returns_after_ms']['pinned', True]:.2f} ms",
            f"{copies['returns_after_ms']['pageable', True]:.0f} ms, with or without",
        ],
        ("06_further_a_real_run", "gpu-look"): [
            f"{ms['none', False]:.0f} ms and peaks at {peak['none', False] / 1e9:.0f} GB",
            f"{runs['mfu_percent']['none', False]:.0f} % of",
            f"{peak['full', False] / 1e9:.0f} GB and the step to {ms['full', False]:.0f} ms",
            f"{ms['selective', False]:.0f} ms at {peak['selective', False] / 1e9:.0f} GB",
            f"{ms['selective', True]:.0f} ms at {peak['selective', True] / 1e9:.0f} GB",
            f"{ms['selective', True] / ms['none', False] - 1:.0%}".replace("%", " % of the time"),
        ],
        ("06_further_strategies", "checkpointing-gpu-look"): [
            f"{gigabytes(kept['activation_bytes'][1024, 'none'])} GB to "
            f"{gigabytes(kept['activation_bytes'][1024, 'each block'])},",
            f"{gigabytes(kept['peak_bytes'][1024, 'none'])} GB to "
            f"{gigabytes(kept['peak_bytes'][1024, 'each block'])},",
            f"{kept['median_ms'][1024, 'each block'] / kept['median_ms'][1024, 'none']:.2f} times",
        ],
    }


def test_pages_state_what_was_recorded():
    """Recorded anew on another GPU, the sentences below the tables change as well."""
    for (page, cell), figures in statements().items():
        notebook = json.loads((FOLDER / place_of(page)).read_text())
        (text,) = ["".join(one["source"]) for one in notebook["cells"] if one["id"] == cell]
        assert [figure for figure in figures if figure not in text] == [], page


# The ledger


def ledger(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The moments as columns, a row for each strategy and number of ranks."""
    return rows.pivot(index=["strategy", "ranks"], columns="after", values=column)


@pytest.fixture(scope="module")
def counts() -> pd.DataFrame:
    """What tensors hold, in bytes a parameter: a row a strategy and number of ranks."""
    parameters = sum(one.numel() for one in DigitsTransformer(TINY.width, TINY.depth).parameters())
    return ledger(tiny_rows("memory", CPU), "counted_bytes")[list(one_gpu.MOMENTS)] / parameters


def test_the_count_is_parameters_gradients_and_two_moments_of_adam(counts):
    """In fp32, P parameters: 4 P bytes, 8 P after backward, 16 P after the step, then 12 P."""
    for strategy, _ in counts[counts.index.get_level_values("ranks") == 1].index:
        assert counts.loc[strategy, 1].tolist() == [4, 4, 8, 16, 12, 12], strategy


def test_rank_0_of_eight_counts_an_eighth_of_what_is_sharded(counts):
    """It has the longest shards: of a parameter with 10 rows it has 2."""
    kept = counts.xs(one_gpu.RANKS, level="ranks").drop(columns="forward")
    names = ["ZeRO-1, without DDP's buckets", "HSDP, 2 x 4"]
    zero_1, hsdp = kept.loc[names[0]], kept.loc[names[1]]
    sharded = kept.drop(names)
    whole = pd.Series([4, 8, 16, 12, 12], index=kept.columns)
    assert (sharded / whole).stack().between(1 / 8, 1.1 / 8).all()
    assert (hsdp / whole).between(1 / 4, 1.1 / 4).all()
    assert zero_1[["built", "backward"]].tolist() == [4, 8]
    assert 0.5 < zero_1["zero_grad"] - 4 < 2  # 1 of 8 bytes a parameter, in whole parameters
    assert counts["forward"]["blocks stay gathered", one_gpu.RANKS] == 4


def test_no_group_is_left_after_a_case_that_fails():
    """The next case makes its own."""
    with pytest.raises(ZeroDivisionError), one_gpu.group("gloo", 1, CPU):
        _ = 1 / 0
    assert not torch.distributed.is_initialized()
    with one_gpu.group("fake", 8, CPU):
        assert torch.distributed.get_world_size() == 8
    assert not torch.distributed.is_initialized()


def test_fp32_is_fp32_again_after_a_step_in_tf32(monkeypatch):
    """Also where the step fails: the next case is measured after it."""
    monkeypatch.setattr(one_gpu, "training_step", lambda *_, **__: lambda: 1 / 0)
    monkeypatch.setattr(one_gpu, "_compare_steps", lambda steps, *_: steps["TF32"]())
    with pytest.raises(ZeroDivisionError):
        one_gpu._precision(TINY, CPU, 1)
    assert torch.get_float32_matmul_precision() == "highest"


def test_checkpointed_blocks_learn_the_same():
    """Recomputing changes memory and time, not gradients."""
    images, labels = one_gpu.batch_of(TINY, CPU)
    gradients = []
    for strategy in (one_gpu.PLAIN, one_gpu.CHECKPOINTED):
        model = strategy.wrap(one_gpu.new_model(TINY, CPU), CPU)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        gradients.append([one.grad for one in model.parameters()])
    torch.testing.assert_close(*gradients)


# On a GPU

GPU, LARGE = torch.device("cuda", 0), Size(512, 4, 256)  # far above the allocator's 512 bytes


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """The ledger of the large model, with the allocator's columns."""
    return rows_of("memory", GPU, sizes=[LARGE])


@pytest.mark.gpu1
@pytest.mark.filterwarnings("default")
class TestOnAGpu:
    """What the allocator reports, and what is faster."""

    def test_between_steps_the_allocator_holds_what_is_counted(self, rows):
        """Within 10 %, where nothing but parameters and optimizer state is left.

        A block takes up to 1 MiB more than it needs, if no more is left of its 20 MiB segment.
        """
        others = rows["strategy"].str.contains("DDP|ZeRO|CPU")  # buckets; or not on the GPU
        rows = rows[rows["after"].isin(["built", "zero_grad"]) & ~others]
        ratio = rows["allocated_bytes"] / rows["counted_bytes"]
        assert ratio.between(0.98, 1.10).all(), rows.assign(ratio=ratio).to_string()

    def test_ddp_keeps_a_second_copy_of_the_gradients_unless_they_are_views(self, rows):
        """Its buckets: 4 bytes a parameter, allocated in the constructor."""
        built = ledger(rows, "allocated_bytes")["built"]
        parameters = built["one process", 1]
        assert built["DDP", 1] / parameters == pytest.approx(2, rel=0.05)

    def test_one_rank_of_eight_peaks_far_below_a_process_alone(self, rows):
        """Even with its unsharded blocks."""
        peaks = ledger(rows, "peak_bytes")["next step"]
        assert peaks["fully_shard", one_gpu.RANKS] < peaks["fully_shard", 1]

    def test_checkpointing_keeps_less_for_backward(self):
        """At least 3 times less for a model of 4 blocks."""
        rows = rows_of("activations", GPU, size=LARGE, batches=[256])
        kept = rows.set_index("checkpointing")["activation_bytes"]
        assert kept["each block"] < kept["none"] / 3

    def test_bf16_is_faster_than_fp32_where_products_are_large(self):
        """On any GPU with tensor cores for it."""
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            pytest.skip("this GPU computes no bf16")
        rows = rows_of("precision", GPU, sizes=[Size(2048, 2, 512)], rounds=10)
        assert rows.set_index("candidate")["times_as_fast"]["bf16 autocast"] > 1.2

    def test_a_pinned_copy_returns_before_it_is_done(self):
        """With non_blocking; from pageable memory it cannot."""
        rows = rows_of("copies", GPU, mebibytes=[256], rounds=5)
        rows = rows.set_index(["host_memory", "non_blocking"])
        milliseconds = 256 * 2**20 / 1e6 / rows["median_gb_per_s"]
        assert rows["returns_after_ms"]["pinned", True] < milliseconds["pinned", True] / 5
        assert rows["median_gb_per_s"]["pinned", True] > rows["median_gb_per_s"]["pageable", True]
