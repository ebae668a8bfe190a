"""What the pages of chapter 01 say in prose, where no cell of them can show it quietly."""

import difflib
import inspect
import warnings
import weakref

import nbformat
import pytest
import torch
from torch import nn

from ddp_workbook.chapters import data_parallel, single_process
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, batches
from ddp_workbook.page.pages import FOLDER, place_of
from tools.set_up import ROOT

FOUR = [torch.device("cpu")] * 4
NOTEBOOKS = ROOT / "notebooks"
LONELY = "Expected more than 1 value per channel"
SCALARS = "Was asked to gather along dimension 0, but all"


@pytest.fixture(scope="module")
def digits() -> DigitsDataset:
    return DigitsDataset()


def batch_norm_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(64, momentum=1.0), nn.Linear(64, 10))


def gradient(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    single_process.forward_and_backward(model, images, labels)
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(
    ("rows", "hidden"), [(8, True), (12, True), (9, True), (6, True), (10, False), (5, False)]
)
def test_pieces_of_one_length_hide_a_mean_of_means(digits, rows, hidden):
    model, images, labels = DigitsMLP(), digits.images[:rows], digits.labels[:rows]
    pieces = data_parallel.scatter(images, labels, FOUR)
    plain = torch.stack([gradient(model, *piece) for piece in pieces]).mean(dim=0)
    whole = gradient(model, images, labels)
    off = ((plain - whole).norm() / whole.norm()).item()
    assert off < 1e-5 if hidden else off > 0.05


def test_the_mean_of_means_is_off_by_what_the_page_says(digits):
    images, labels = next(batches(digits, 10, epoch=0))
    torch.manual_seed(0)
    model = DigitsMLP()
    pieces = data_parallel.scatter(images, labels, FOUR)
    plain = torch.stack([gradient(model, *piece) for piece in pieces]).mean(dim=0)
    whole = gradient(model, images, labels)
    share = round(100 * ((plain - whole).norm() / whole.norm()).item())
    page = nbformat.read(NOTEBOOKS / "01_data_parallel.ipynb", as_version=4)
    said = f"off by {share} % of the true gradient's norm"
    assert any(said in cell.source for cell in page.cells if cell.cell_type == "markdown")


def test_four_lines_of_the_loop_differ_from_one_process():
    mine = inspect.getsource(data_parallel.train).splitlines()
    alone = inspect.getsource(single_process.train).splitlines()
    new = [line[2:] for line in difflib.ndiff(alone, mine) if line.startswith("+ ")]
    assert len([line for line in new if '"""' not in line]) == 4
    page = nbformat.read(FOLDER / place_of("01_further_inside_data_parallel"), as_version=4)
    assert any("in four lines and its docstring" in cell.source for cell in page.cells)


def test_after_a_step_the_copies_are_gone(digits, monkeypatch):
    copies = []

    def replicate_and_record(model, devices, replicate=data_parallel.replicate):
        replicas = replicate(model, devices)
        copies.extend(map(weakref.ref, replicas[1:]))
        return replicas

    monkeypatch.setattr(data_parallel, "replicate", replicate_and_record)
    data_parallel.forward_and_backward(DigitsMLP(), digits.images[:8], digits.labels[:8], FOUR)
    assert len(copies) == 3
    assert [copy() for copy in copies] == [None] * 3


def test_a_piece_of_one_row_stops_batch_norm_where_one_process_trains_on(digits):
    images, labels = digits.images[:10], digits.labels[:10]
    single_process.forward_and_backward(batch_norm_model(), images, labels)
    with pytest.raises(ValueError, match=LONELY):
        data_parallel.forward_and_backward(batch_norm_model(), images, labels, FOUR)


class Counts(DigitsMLP):
    """Counts its calls in an attribute and in a buffer that is changed in place."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("calls_in_buffer", torch.zeros(1))

    def forward(self, images):
        self.calls += 1
        self.calls_in_buffer += 1
        return super().forward(images)


def test_the_stand_in_counts_the_calls_of_replica_0_alone(digits):
    model = Counts()
    for _ in range(5):
        data_parallel.forward_and_backward(model, digits.images[:8], digits.labels[:8], FOUR[:2])
    assert (model.calls, model.calls_in_buffer.item()) == (5, 5)


def test_a_replica_of_data_parallel_shares_buffers_and_not_attributes():
    model = Counts()
    replica = model._replicate_for_data_parallel()  # what nn.DataParallel makes for each GPU
    replica(torch.zeros(1, 64))
    assert (model.calls, model.calls_in_buffer.item()) == (0, 1)


def test_its_forward_has_the_four_operations_in_this_order():
    source = inspect.getsource(nn.DataParallel.forward)
    names = ["scatter", "replicate", "parallel_apply", "gather"]
    places = [source.index(f"self.{name}(") for name in names]
    assert places == sorted(places)


def test_gradients_are_added_in_the_backward_of_its_copying():
    broadcast = torch.nn.parallel._functions.Broadcast
    assert "ReduceAddCoalesced" in inspect.getsource(broadcast.backward)
    assert "Broadcast.apply" in inspect.getsource(
        torch.nn.parallel.replicate.__globals__["_broadcast_coalesced_reshape"]
    )


def test_no_word_is_said_where_there_is_no_gpu(digits, monkeypatch):
    monkeypatch.setitem(
        nn.DataParallel.__init__.__globals__, "_get_available_device_type", lambda: None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapped = nn.DataParallel(DigitsMLP())
        assert wrapped(digits.images[:64]).shape == (64, 10)
    assert wrapped.device_ids == []


def test_gathered_outputs_of_the_language_model():
    gib = torch.empty(64, 1024, 50257, device="meta").nbytes / 2**30
    page = nbformat.read(FOLDER / place_of("01_further_what_a_replica_keeps"), as_version=4)
    said = f"{gib:.1f} GiB instead of {gib / 8:.1f},"
    assert any(said in cell.source for cell in page.cells if cell.cell_type == "markdown")


@pytest.mark.gpu
class TestOnTwoGpus:
    """The same sentences, of nn.DataParallel itself."""

    def test_an_uneven_batch_is_weighted_rightly_if_the_loss_comes_after_it(self, digits):
        torch.manual_seed(0)
        model, images, labels = DigitsMLP().to("cuda:0"), digits.images[:5], digits.labels[:5]
        devices = data_parallel.pick_devices(2)
        data_parallel.forward_and_backward(model, images, labels, devices)
        split = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        torch.testing.assert_close(split, gradient(model, images.to("cuda:0"), labels.to("cuda:0")))

    def test_a_loss_inside_forward_becomes_a_vector_with_a_warning(self, digits):
        class WithLoss(DigitsMLP):
            def forward(self, images, labels):
                return nn.functional.cross_entropy(super().forward(images), labels)

        wrapped = nn.DataParallel(WithLoss().to("cuda:0"), [0, 1])
        with pytest.warns(UserWarning, match=SCALARS):
            losses = wrapped(digits.images[:5], digits.labels[:5])
        assert losses.shape == (2,)

    def test_the_running_mean_is_that_of_replica_0(self, digits):
        model, rows = batch_norm_model().to("cuda:0"), digits.images[:10]
        devices = data_parallel.pick_devices(2)
        data_parallel.forward_and_backward(model, rows, digits.labels[:10], devices)
        torch.testing.assert_close(model[0].running_mean.cpu(), rows[:5].mean(dim=0))

    def test_gpu_0_holds_more(self, digits):
        devices = data_parallel.pick_devices(2)
        model = DigitsMLP(1024, 4).to(devices[0])
        optimizer = torch.optim.Adam(model.parameters())
        for device in devices:
            torch.cuda.reset_peak_memory_stats(device)
        data_parallel.forward_and_backward(model, digits.images, digits.labels, devices)
        optimizer.step()
        first, second = (torch.cuda.memory_allocated(device) for device in devices)
        assert first > 4 * sum(p.nbytes for p in model.parameters()) * 0.99
        assert second < first / 4
