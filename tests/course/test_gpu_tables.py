"""Pages and the tables that `make gpu` recorded: what they show of them, what they say of them."""

import json
import re

import pytest

from benchmarks.gpu.measurements import record
from ddp_workbook.experiments import gpu_tables
from ddp_workbook.experiments.fully_sharded.ledger import read_ledger
from ddp_workbook.experiments.gpu_tables import recorded_gpu, recorded_gpu_table
from ddp_workbook.page import pages


@pytest.mark.parametrize("name", gpu_tables.COLUMNS)
def test_a_page_shows_what_a_gpu_recorded(name, tmp_path):
    """In a reader's words, bytes as GB, below the machine's name; of some rows, if asked."""
    columns = gpu_tables.COLUMNS[name]
    rows = [dict.fromkeys(columns, value) for value in (1.0, 2e9)]
    record(name, rows, "a GPU", tmp_path)
    shown = recorded_gpu_table(name, tmp_path, **{columns[0]: 2e9})
    assert list(shown.data) == [gpu_tables.HEADINGS.get(column, column) for column in columns]
    assert shown.data.iloc[0].tolist() == [
        2.0 if column.endswith("_bytes") else 2e9 for column in columns
    ]
    assert len(shown.data) == 1 and shown.caption.startswith("a GPU, 20")


def test_each_table_on_a_page_has_been_recorded():
    """No page shows a place for numbers that nobody has measured."""
    texts = [path.read_text(encoding="utf-8") for path in pages.all_pages()]
    shown = {name for text in texts for name in re.findall(r'recorded_gpu_table\(\\"(\w+)', text)}
    assert shown == set(gpu_tables.COLUMNS)
    assert {name for name in shown if recorded_gpu(name).empty} == set()


def gigabytes(value: float) -> str:
    return f"{value / 1e9:.2g}"


def statements() -> dict[tuple[str, str], list[str]]:
    """Page and cell -> the figures that it states of what was recorded, from the tables."""
    wide = {name: recorded_gpu(name) for name in gpu_tables.COLUMNS}
    ways = wide["one_rank"].set_index(["width", "candidate"])
    fast = wide["precision"].set_index(["width", "candidate"])["times_as_fast"]
    kept = wide["activations"].set_index(["batch", "checkpointing"])
    runs = wide["real_run"].set_index(["checkpointing", "compiled"])
    copies = wide["copies"].query("mebibytes == 256").set_index(["host_memory", "non_blocking"])
    longer, speed = ways["times_as_long"], copies["median_gb_per_s"]
    ms, peak = runs["median_ms"], runs["peak_bytes"]
    held = read_ledger().query("width == 1024").set_index("strategy")
    above = held["allocator's peak"] / held["all parts, by formula"] - 1
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
        ("06_further_strategies", "yours"): [
            f"within {above.drop('checkpointing').abs().max():.0%} of".replace("%", " %"),
            f"with checkpointing it is {above['checkpointing']:.0%} above".replace("%", " %"),
        ],
    }


def test_pages_state_what_was_recorded():
    """Recorded anew on another GPU, the sentences below the tables change as well."""
    for (page, cell), figures in statements().items():
        notebook = json.loads((pages.FOLDER / pages.place_of(page)).read_text())
        (text,) = ["".join(one["source"]) for one in notebook["cells"] if one["id"] == cell]
        assert [figure for figure in figures if figure not in text] == [], page
    ledger = read_ledger()
    assert (ledger["kept, by formula"] == ledger["kept, counted"]).all()
