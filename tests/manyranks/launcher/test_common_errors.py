"""Errors that people ask about come with the sentence that helps, and no other error does."""

import re

import pytest

from manyranks.diagnostics import advice
from manyranks.errors import RankFailed
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks
from tests.leaks import no_rank_left  # noqa: F401
from tests.workers import common_errors as errors

# Worker -> words of the advice.
ADVICE = {
    errors.checkpoints_by_reentrance: "use_reentrant=False",
    errors.goes_backward_for_each_loss: "on the sum of the losses",
    errors.uses_a_parameter_outside_forward: "inside the wrapped model's forward",
    errors.wraps_a_frozen_model: "use the model without DDP",
    errors.wraps_other_sizes: "built different models",
    errors.wraps_another_layout: "built different models",
    errors.wraps_more_layers: "built different models",
    errors.trains_on_inference_tensors: "under torch.no_grad() instead",
    errors.changes_an_inference_tensor: "or use its clone()",
    errors.detaches_the_loss: "detach(), item(), no_grad()",
    errors.trains_on_what_was_gathered: "tensors that dist.all_gather and other",
    errors.steps_before_backward: "optimizer.step()",
    errors.goes_backward_twice: "frees the graph",
    errors.divides_a_parameter: "only under torch.no_grad()",
    errors.trains_on_one_sample: "at least two samples",
    errors.feeds_float64: "float64 by default",
    errors.optimizes_nothing: "No parameter reached the optimizer",
    errors.names_the_bucket_otherwise: "second parameter `bucket`",
    errors.recomputes_something_else: "such as a cache, a counter",
    errors.sets_the_epoch_of_a_loader: "sampler.set_epoch(epoch)",
    errors.shuffles_beside_a_sampler: "pass shuffle to the DistributedSampler",
    errors.gathers_other_shapes: "pad to the largest",
    errors.gathers_into_a_short_output: "each part of a single output",
    errors.scatters_other_shapes: "pad to the largest",
    errors.reduce_scatters_an_odd_length: "a multiple of world_size",
    errors.reduce_scatters_other_shapes: "has the output's shape",
    errors.exchanges_a_list_of_other_shapes: "use all_to_all_single",
    errors.sends_itself_less_than_it_expects: "as the other one sends it",
    errors.splits_less_than_there_is: "add up to the input's rows",
    errors.splits_for_one_rank: "one entry per rank",
    errors.broadcasts_from_nobody: "dist.get_world_size() - 1",
    errors.reduces_to_nobody: "dist.get_world_size() - 1",
    errors.gathers_everywhere: "Only the rank dst",
    errors.reduces_a_missing_gradient: "send zeros",
    errors.gathers_numbers: "torch.tensor([x])",
    errors.waits_for_a_finished_call: "async_op=True",
    errors.averages_bools: "ReduceOp.AVG needs that too",
    errors.averages_integers: "ReduceOp.AVG needs that too",
    errors.scales_before_the_sum: "use ReduceOp.SUM",
    errors.sums_int16: "int16, uint16 and float8",
    errors.sends_a_column: "send x.contiguous()",
    errors.exchanges_a_column: "send x.contiguous()",
    errors.splits_the_group: "dist.new_group(ranks)",
    errors.waits_for_a_key: "needs a store.set()",
    errors.misses_the_monitored_barrier: "did not call monitored_barrier",
    errors.mismatches_in_detail: "Compare the two fingerprints",
    errors.asks_nvidia_smi: "comes with NVIDIA's driver",
    errors.imports_triton: "This package runs on GPUs",
    errors.calls_a_layer_of_a_sharded_model: "call the model itself",
    errors.adds_a_plain_tensor: "distribute_tensor() or full_tensor()",
    errors.loads_a_plain_state: "StateDictOptions(full_state_dict=True)",
    errors.loads_a_sharded_state: "StateDictOptions(full_state_dict=True)",
    errors.loads_shards: "shards (to_local())",
    errors.accumulates_with_no_sync: "set_requires_gradient_sync(False)",
    errors.clips_by_a_method: "torch.nn.utils.clip_grad_norm_",
    errors.reduces_a_dtensor: "pass x.to_local()",
    errors.wraps_a_sharded_model: "no DDP around it",
    errors.unfolds_a_dtensor: "DTensor cannot run this operation",
    errors.finds_the_nonzeros_of_a_dtensor: "DTensor cannot run this operation",
    errors.mixes_meshes: "the same DeviceMesh",
    errors.places_on_one_of_two_dimensions: "one placement",
    errors.makes_an_array_of_a_dtensor: "x.full_tensor().numpy()",
    errors.gathers_what_is_not_sharded: "not a DTensor",
    errors.wants_a_large_mesh: "launch more ranks",
    errors.shards_two_dtypes: "need one dtype",
    errors.flattens_two_dtypes: "need one dtype",
    errors.shards_the_root_first: "on the inner layers first",
    errors.calls_a_layer_inside_fsdp1: "call the wrapped model itself",
    errors.shards_a_list: "for layer in layers",
    errors.trains_on_the_meta_device: "model.to_empty(device=device)",
    errors.loads_a_compiled_state: "model.compile()",
    errors.loads_another_optimizer: "another number of parameters",
    errors.loads_what_was_not_saved: "not saved under that name",
    errors.loads_an_optimizer_that_has_stepped: "use get_optimizer_state_dict",
    errors.loads_another_size: "sizes that it was saved with",
    errors.saves_in_two_folders: "the same folder on every rank",
    errors.loads_an_object: "save model.state_dict(), not the model",
    errors.loads_half_a_file: "Let one rank write it",
    errors.loads_an_empty_file: "may still be writing it",
    errors.unpickles_an_empty_file: "may still be writing it",
    errors.loads_a_folder: "This path is a folder",
    errors.saves_on_a_full_disk: "the disk or your quota full",
    errors.writes_on_a_full_disk: "docker run --shm-size",
    errors.makes_a_folder_twice: "exist_ok=True",
    errors.loses_a_loader_worker: "num_workers=0 shows an error",
    errors.opens_too_many_files: "ulimit -n",
}
# Beside the above: the same work done right, which succeeds, and other errors.
HEALTHY = [
    errors.checkpoints_without_reentrance,
    errors.checkpoints_a_static_graph,
    errors.goes_backward_for_the_sum,
    errors.averages_floats,
]
WITHOUT_ADVICE = [
    errors.multiplies_wrong_shapes,
    errors.names_no_dimension,
    errors.loads_too_little,
]
# Errors of GPUs or of another version of PyTorch -> words of the advice, or "" if there is none.
TEXTS = {
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
    "cuda:0 and cpu!": "device=x.device",
    "RuntimeError: Cannot re-initialize CUDA in forked subprocess.": "Return CPU tensors",
    "RuntimeError: aten.add.Tensor: got mixed torch.Tensor and DTensor": "A DTensor met",
    "RuntimeError: No backend for the parent process group or its backend does not support "
    "splitting": "dist.new_group(ranks)",
    "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.": "starts num_workers",
    "RuntimeError: result type ComplexFloat can't be cast to the desired output type Float": "",
    "RuntimeError: Invalid scalar type for this kernel": "",
    "OSError: [Errno 23] Too many open files in system: '/dev/null'": "",
    "AttributeError: 'Linear' object has no attribute 'no_sync'": "",
    "AttributeError: 'Linear' object has no attribute 'full_tensor'": "",
    "TypeError: value was None": "",
}


def failure(worker) -> RankFailed:
    with pytest.raises(RankFailed) as caught:
        run_ranks(Call(worker, ()), 2, 30, quiet=True)
    return caught.value


@pytest.mark.parametrize("worker", ADVICE, ids=lambda worker: worker.__name__)
def test_an_error_comes_with_its_advice_and_matches_no_other(worker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some make files
    error = failure(worker)
    assert ADVICE[worker] in str(error).split("look at   ")[1]
    text = error.reason if error.reason.startswith(error.kind) else f"{error.kind}: {error.reason}"
    matches = [sentence for pattern, sentence in advice.FOR_ERRORS if re.search(pattern, text)]
    assert len(matches) == 1, matches


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        (errors.reads_a_shortened_file, "/dev/shm"),
        (errors.broadcasts_lists_of_two_lengths, "lists of different length"),
        (errors.exchanges_more_than_its_peer_expects, "split sizes that do not match"),
    ],
)
def test_a_death_comes_with_its_advice(worker, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in str(failure(worker)).split("look at   ")[1]


@pytest.mark.parametrize("worker", HEALTHY, ids=lambda worker: worker.__name__)
def test_the_repaired_worker_runs(worker):
    assert run_ranks(Call(worker, ()), 2, 30, quiet=True) == [None, None]


@pytest.mark.parametrize("worker", WITHOUT_ADVICE, ids=lambda worker: worker.__name__)
def test_an_error_beside_those_comes_without_advice(worker):
    assert "look at" not in str(failure(worker))


@pytest.mark.parametrize("text", TEXTS)
def test_texts_that_no_rank_here_raises(text):
    sentence = advice.for_error(text.partition(":")[0], text)
    assert TEXTS[text] in sentence and bool(sentence) is bool(TEXTS[text])
