"""What `make gpu` measures: every case on a CPU at tiny sizes, and on a GPU if there is one."""

from functools import cache

import pandas as pd
import pytest
import torch

from benchmarks.gpu import measurements
from ddp_workbook.chapters.digits import DigitsTransformer
from ddp_workbook.chapters.fully_sharded_real_run import Settings
from ddp_workbook.experiments.data_parallel.step_times import Size
from ddp_workbook.experiments.fully_sharded.strategies import group
from ddp_workbook.experiments.gpu_tables import FOLDER, recorded_gpu

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
    cases = measurements.MEASUREMENTS[name](device, **SMALLER[name] | more)
    rows, failed = measurements.run_cases(cases)
    assert failed == {}
    return pd.DataFrame(rows)


@each_device
@pytest.mark.parametrize("name", measurements.MEASUREMENTS)
@pytest.mark.filterwarnings("default:The .grad attribute")  # torch.compile's own look at a tensor
def test_every_case_fills_its_columns(name, device, tmp_path):
    """Those that are recorded, and are read back; only bytes are missing on a CPU."""
    rows = tiny_rows(name, device)
    measurements.record(name, rows.to_dict("records"), "a GPU, torch 9", tmp_path)
    found = recorded_gpu(name, tmp_path)
    if (FOLDER / f"{name}.csv").is_file():
        assert list(found) == list(recorded_gpu(name))
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


def test_what_is_recorded_in_the_repository_fits():
    """Nothing but CSVs of measurements, from a GPU."""
    paths = sorted(FOLDER.glob("*.csv"))
    assert {path.stem for path in paths} <= {*measurements.MEASUREMENTS}
    assert all(pd.read_csv(path)["machine"].str.contains("CUDA").all() for path in paths)


# The ledger


def ledger(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The moments as columns, a row for each strategy and number of ranks."""
    return rows.pivot(index=["strategy", "ranks"], columns="after", values=column)


@pytest.fixture(scope="module")
def counts() -> pd.DataFrame:
    """What tensors hold, in bytes a parameter: a row a strategy and number of ranks."""
    parameters = sum(one.numel() for one in DigitsTransformer(TINY.width, TINY.depth).parameters())
    counted = ledger(tiny_rows("memory", CPU), "counted_bytes")
    return counted[list(measurements.MOMENTS)] / parameters


def test_the_count_is_parameters_gradients_and_two_moments_of_adam(counts):
    """In fp32, P parameters: 4 P bytes, 8 P after backward, 16 P after the step, then 12 P."""
    for strategy, _ in counts[counts.index.get_level_values("ranks") == 1].index:
        assert counts.loc[strategy, 1].tolist() == [4, 4, 8, 16, 12, 12], strategy


def test_rank_0_of_eight_counts_an_eighth_of_what_is_sharded(counts):
    """It has the longest shards: of a parameter with 10 rows it has 2."""
    kept = counts.xs(measurements.RANKS, level="ranks").drop(columns="forward")
    names = ["ZeRO-1, without DDP's buckets", "HSDP, 2 x 4"]
    zero_1, hsdp = kept.loc[names[0]], kept.loc[names[1]]
    sharded = kept.drop(names)
    whole = pd.Series([4, 8, 16, 12, 12], index=kept.columns)
    assert (sharded / whole).stack().between(1 / 8, 1.1 / 8).all()
    assert (hsdp / whole).between(1 / 4, 1.1 / 4).all()
    assert zero_1[["built", "backward"]].tolist() == [4, 8]
    assert 0.5 < zero_1["zero_grad"] - 4 < 2  # 1 of 8 bytes a parameter, in whole parameters
    assert counts["forward"]["blocks stay gathered", measurements.RANKS] == 4


def test_no_group_is_left_after_a_case_that_fails():
    """The next case makes its own."""
    with pytest.raises(ZeroDivisionError), group("gloo", 1):
        _ = 1 / 0
    assert not torch.distributed.is_initialized()
    with group("fake", 8):
        assert torch.distributed.get_world_size() == 8
    assert not torch.distributed.is_initialized()


def test_fp32_is_fp32_again_after_a_step_in_tf32(monkeypatch):
    """Also where the step fails: the next case is measured after it."""
    monkeypatch.setattr(measurements, "training_step", lambda *_, **__: lambda: 1 / 0)
    monkeypatch.setattr(measurements, "_compare_steps", lambda steps, *_: steps["TF32"]())
    with pytest.raises(ZeroDivisionError):
        measurements._precision(TINY, CPU, 1)
    assert torch.get_float32_matmul_precision() == "highest"


def test_checkpointed_blocks_learn_the_same():
    """Recomputing changes memory and time, not gradients."""
    images, labels = measurements.batch_of(TINY, CPU)
    gradients = []
    for strategy in (measurements.PLAIN, measurements.CHECKPOINTED):
        model = strategy.wrap(measurements.new_model(TINY, CPU), CPU)
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
        assert peaks["fully_shard", measurements.RANKS] < peaks["fully_shard", 1]

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
