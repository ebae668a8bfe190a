"""Chapter 08, sharded checkpoints: what is saved is what is loaded, by any number of ranks."""

import pickle
import shutil

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader

from ddp_workbook import launch, recorded
from ddp_workbook.chapters.digits import DigitsTransformer
from ddp_workbook.experiments.checkpoint_and_recover import sharded
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tests.workers import sharded_states

pytestmark = pytest.mark.push("claims of further pages")

SIZES = {"width": 16, "depth": 1, "batch_size": 100}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """For 1 to 4 ranks: a folder with the checkpoint after step 2, and the run of 4 steps."""
    runs = {}
    for ranks in (1, 2, 3, 4):
        folder = tmp_path_factory.mktemp("checkpoint") / f"of_{ranks}"
        run = launch(sharded.train, 4, save_to=folder, save_at=2, ranks=ranks, **SIZES)[0]
        runs[ranks] = folder, run
    return runs


# As many ranks, fewer that do not divide, a single one, more that do not divide; and others.
PAIRS = [(4, 4), (4, 3), (4, 1), (3, 4)]
OTHER_PAIRS = [(4, 2), (2, 3), (1, 4), (1, 1)]
other_pairs = pytest.mark.release("checkpoints from and to other numbers of ranks")


@pytest.mark.parametrize(
    ("written_by", "read_by"),
    [*PAIRS, *(pytest.param(*pair, marks=other_pairs) for pair in OTHER_PAIRS)],
)
def test_another_number_of_ranks_goes_on_as_if_nothing_had_happened(
    checkpoints, written_by, read_by
):
    """Weights and AdamW's state to the last bit; the steps after that up to rounding."""
    folder, run = checkpoints[written_by]
    resumed = launch(sharded.train, 4, resume_from=folder, ranks=read_by, **SIZES)[0]
    torch.testing.assert_close(resumed.initial, run.checkpoint, rtol=0, atol=0)
    assert len(resumed.initial.moments) == 3 * len(resumed.initial.weights)
    assert {value.item() for key, value in resumed.initial.moments.items() if "step" in key} == {2}
    assert resumed.losses == pytest.approx(run.losses[2:], abs=5e-6)
    torch.testing.assert_close(resumed.final.weights, run.final.weights, rtol=0, atol=2e-5)


def test_the_number_of_ranks_does_not_change_the_training(checkpoints):
    """And the loss falls, so that a checkpoint of nothing would show."""
    losses = [run.losses for _, run in checkpoints.values()]
    assert all(one == pytest.approx(losses[0], abs=5e-6) for one in losses)
    assert torch.equal(
        checkpoints[4][1].initial.weights["position"], checkpoints[1][1].initial.weights["position"]
    )
    first, last = checkpoints[4][1].checkpoint.weights, checkpoints[4][1].final.weights
    assert all(not torch.equal(first[name], last[name]) for name in first)


def test_differences_are_the_largest_of_each_kind():
    def run(losses, weight, moment):
        state = sharded.State({"w": torch.tensor([1.0, weight])}, {"w step": moment})
        return sharded.Run(losses, state, state, state)

    never = run([9.0, 3.0, 2.0], 5.0, torch.tensor(2.0))
    table = sharded.differences({2: run([3.0, 2.5], 4.0, torch.tensor(2.0))}, never)
    assert list(table[2]) == [1.0, 0.0, 0.5, 1.0]
    with pytest.raises(ValueError, match="not the same names"):
        sharded.furthest({"w": torch.ones(1)}, {"v": torch.ones(1)})


def test_without_the_optimizer_state_the_steps_are_others(checkpoints):
    folder, run = checkpoints[2]
    losses = launch(sharded_states.without_the_optimizer, folder, 4, ranks=2, **SIZES)[0]
    assert losses[0] == pytest.approx(run.losses[2], abs=5e-6)
    assert abs(losses[1] - run.losses[3]) > 2e-5


def test_both_ways_of_saving(tmp_path):
    """Only rank 0 is given whole weights, all ranks make the same calls, DCP sends no weight."""
    sizes = {"width": 16, "depth": 1}
    held, wire = recorded(sharded.save_both_ways, tmp_path, ranks=3, **sizes)
    torch.manual_seed(0)
    expected = DigitsTransformer(**sizes).state_dict()
    whole = sum(value.nbytes for value in expected.values())
    assert [full for _, full in held] == [whole, 0, 0]
    assert sum(shards for shards, _ in held) == whole
    loaded = torch.load(tmp_path / "full.pt", weights_only=True)
    torch.testing.assert_close(dict(loaded), dict(expected), rtol=0, atol=0)
    tables = [sharded.calls_by_line(wire, rank) for rank in range(3)]
    for table in tables:
        assert list(table["op"]) == list(tables[0]["op"])
        assert list(table["calls"]) == list(tables[0]["calls"])
        by_dcp = table["line"].str.startswith("dcp.save")
        assert not table.loc[by_dcp, "dtype"].str.contains("float").any()
        assert list(table.loc[~by_dcp, "calls"]) == [len(expected)]
    names = list(sharded.files(tmp_path / "shards")["file"])
    assert names == [".metadata", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp"]


@pytest.mark.parametrize(("ranks", "shares"), [(1, True), (2, False)])
def test_with_one_rank_the_full_state_dict_is_the_models_own_memory(ranks, shares):
    assert launch(sharded_states.full_state_shares_memory, ranks=ranks)[0] == shares


def test_set_model_state_dict_writes_into_the_dict_that_it_gets():
    assert launch(sharded_states.types_in_dict_after_load, ranks=2) == [["DTensor"], []]


def test_a_plain_model_refuses_shards():
    assert (
        "mixed torch.Tensor and DTensor" in launch(sharded_states.load_into_plain_model, ranks=2)[0]
    )


def test_fewer_ranks_leave_the_files_of_others_behind(tmp_path):
    """The metadata does not name them."""
    folder = tmp_path / "shards"
    launch(sharded_states.save_shards, folder, ranks=3)
    launch(sharded_states.save_shards, folder, ranks=2)
    assert len(sharded.files(folder)) == 1 + 3
    places = FileSystemReader(folder).read_metadata().storage_data.values()
    assert {place.relative_path for place in places} == {"__0_0.distcp", "__1_0.distcp"}


def test_the_metadata_is_written_last(checkpoints):
    folder, _ = checkpoints[4]
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert times[".metadata"] == max(times.values())


def test_dcp_unpickles_what_it_reads(tmp_path):
    """The metadata, and each entry that is no tensor."""
    assert launch(sharded_states.load_unsafely, tmp_path / "shards", ranks=2)[0] == {True, False}
    metadata = (tmp_path / "shards" / ".metadata").read_bytes()
    assert type(pickle.loads(metadata)).__name__ == "Metadata"


def test_a_folder_without_metadata_is_refused(checkpoints, tmp_path):
    shutil.copytree(checkpoints[2][0], tmp_path / "torn")
    (tmp_path / "torn" / ".metadata").unlink()
    with pytest.raises(FileNotFoundError):
        FileSystemReader(tmp_path / "torn").read_metadata()


def test_a_picture_has_a_bar_and_a_label_for_each_rank_that_has_rows():
    picture = sharded.rows({4: [3, 3, 3, 1], 8: [2, 2, 2, 2, 2, 0, 0, 0]}, "weight")
    ends = [one.get_width() for one in picture.axes.patches]
    texts = [text.get_text() for text in picture.axes.texts]
    assert ends == [3, 3, 3, 1, 2, 2, 2, 2, 2]
    assert texts == [f"rank {rank}" for rank in (0, 1, 2, 3, 0, 1, 2, 3, 4)]
    assert "on 4: rank 0 from 0 to 3, rank 1 from 3 to 6" in picture.alt


def test_a_picture_has_a_bar_for_what_each_rank_wrote(tmp_path):
    (tmp_path / "shards").mkdir()
    for rank in range(2):
        (tmp_path / "shards" / f"__{rank}_0.distcp").write_bytes(bytes(2048))
    (tmp_path / "full.pt").write_bytes(bytes(4096))
    picture = sharded.bytes_written_plot(tmp_path)
    heights = [[bar.get_height() for bar in axes.patches] for axes in picture.figure.axes]
    assert heights == [[4, 0], [2, 2]]
