"""Programs written with accelerate, Lightning or transformers run under `launch` as they are."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from manyranks.launcher.launch import launch
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tests.workers.pasted import spawn_style

pytestmark = pytest.mark.push("other libraries")

FOLDER = Path(spawn_style.__file__).parent
LIMIT = 300  # seconds; the ranks of a test take up to 8 to import the library


def train_on_ranks(script: str, folder: Path, ranks: int) -> list[dict]:
    """What each rank saved: the world size that the library saw, its losses and weights."""
    folder.mkdir()
    launch(FOLDER / script, folder, ranks=ranks, timeout=LIMIT)
    return [torch.load(folder / f"rank_{rank}.pt") for rank in range(ranks)]


@pytest.mark.skipif(
    find_spec("lightning") is None, reason="TORCH=site leaves out what would bring a second torch"
)
@pytest.mark.parametrize(
    "script", ["with_accelerate.py", "with_fabric.py", "with_lightning.py", "with_transformers.py"]
)
def test_two_ranks_of_a_library_train_as_one_process(script, tmp_path, monkeypatch):
    """In each step two ranks share the samples that one process has alone: equal weights follow."""
    monkeypatch.chdir(tmp_path)
    two = train_on_ranks(script, tmp_path / "two", 2)
    (one,) = train_on_ranks(script, tmp_path / "one", 1)
    assert [seen["world_size"] for seen in (*two, one)] == [2, 2, 1]
    for seen in two:
        torch.testing.assert_close(seen["weights"], one["weights"])
        assert seen["losses"] == pytest.approx(one["losses"], rel=1e-3)
    assert one["losses"][-1] < 0.8 * one["losses"][0]
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}  # nothing is left behind
