"""The doctor on scripts as people write them: one mistake each, or none that nearly looks like one.

They were written from threads, without a look at the rules. `# <- here` marks the lines that a
finding may name: that of the mistake, and where something is missing, that where one notices it.
"""

from pathlib import Path

import pytest

from ddp_workbook.checkup.diagnosis import doctor
from ddp_workbook.checkup.facts import NOTE
from tests.leftovers import no_rank_left  # noqa: F401 (a fixture)

SCRIPTS = Path(__file__).parent / "doctor_scripts"
HERE = "# <- here"

# script -> the rule that names its mistake; a second one is as good where two words fit one fact
MISTAKES = {
    "accumulation_without_no_sync_hf_loop": {"accumulation-without-no-sync"},
    "changed_after_ddp_freeze": {"changed-after-ddp", "unused-parameters"},
    "changed_after_ddp_unfreeze": {"changed-after-ddp"},
    "checkpoint_on_one_device_resume": {"checkpoint-on-one-device"},
    "clipped_before_averaging": {"clipped-before-averaging"},
    "equal_augmentation": {"equal-augmentation"},
    "equal_dropout": {"equal-dropout"},
    "equal_worker_seeds_init_fn": {"equal-worker-seeds"},
    "equal_worker_seeds_rng_in_dataset": {"equal-worker-seeds"},
    "evaluation_counts_padding": {"evaluation-counts-padding"},
    "forward_outside_no_sync_backward_only": {"forward-outside-no-sync"},
    "learning_rate_differs_main_process": {"learning-rate-differs"},
    "learning_rate_differs_plateau": {"learning-rate-differs"},
    "local_batch_norm": {"local-batch-norm"},
    "loss_divided_twice_world_size": {"loss-divided-twice"},
    "loss_not_divided_accumulate": {"loss-not-divided"},
    "mean_of_unequal_batches_metric": {"mean-of-unequal-batches"},
    "mean_of_unequal_batches_tokens": {"mean-of-unequal-batches"},
    "needless_find_unused": {"needless-find-unused"},
    "no_set_epoch_main_rank": {"no-set-epoch"},
    "no_set_epoch_trainer_class": {"no-set-epoch"},
    "no_step_seen_empty_loader": {"no-step-seen"},
    "no_step_seen_forgotten": {"no-step-seen"},
    "not_synchronised_broadcast_only": {"not-synchronised"},
    "not_synchronised_last_micro_step": {"not-synchronised", "forward-outside-no-sync"},
    "one_file_by_all_ranks_checkpoint": {"one-file-by-all-ranks"},
    "one_file_by_all_ranks_log": {"one-file-by-all-ranks"},
    "optimizer_before_sharding": {"optimizer-before-sharding"},
    "past_the_wrapper_compute_loss": {"past-the-wrapper"},
    "past_the_wrapper_kept_net": {"past-the-wrapper"},
    "past_the_wrapper_training_step": {"past-the-wrapper"},
    "rank_alone_evaluates_ddp_model": {"rank-alone-in-a-collective"},
    "rank_alone_in_all_reduce": {"rank-alone-in-a-collective"},
    "replicas_differ_buffers": {"replicas-differ"},
    "replicas_differ_by_seed": {"replicas-differ"},
    "replicas_differ_data_write": {"replicas-differ"},
    "same_rows_get_batch": {"same-rows"},
    "same_rows_plain_shuffle": {"same-rows"},
    "sampler_differs_by_rank_seed": {"sampler-differs-by-rank"},
    "sends_more_than_needed_broadcast": {"sends-more-than-needed"},
    "sends_more_than_needed_each_micro_batch": {"sends-more-than-needed"},
    "synchronised_twice_by_hand": {"synchronised-twice"},
    "too_many_threads": {"too-many-threads"},
    "unused_parameters_second_head": {"unused-parameters"},
}
HEALTHY = sorted(path.stem for path in (SCRIPTS / "healthy").glob("*.py"))
RANKS = [2, pytest.param(4, marks=pytest.mark.release)]


def test_each_script_has_its_row_and_its_mark():
    wrong = {path.stem: path.read_text() for path in (SCRIPTS / "wrong").glob("*.py")}
    assert wrong.keys() == MISTAKES.keys()
    assert [name for name, text in wrong.items() if HERE not in text] == []
    marked = [name for name in HEALTHY if HERE in (SCRIPTS / f"healthy/{name}.py").read_text()]
    assert marked == []


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_line(name, ranks):
    script = SCRIPTS / "wrong" / f"{name}.py"
    found = doctor(script, ranks=ranks)
    named = [finding for finding in found.findings if finding.rule in MISTAKES[name]]
    lines = {int(line.partition(":")[2]) for finding in named for line in finding.lines}
    marks = {n for n, line in enumerate(script.read_text().splitlines(), 1) if HERE in line}
    assert any(abs(line - mark) <= 2 for line in lines for mark in marks), found
    others = [f.rule for f in found.findings if f not in named and f.level != NOTE]
    assert others == [], found  # one cause for a symptom


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_script_is_left_alone(name, ranks):
    found = doctor(SCRIPTS / "healthy" / f"{name}.py", ranks=ranks)
    assert (found.exit_code, found.ending) == (0, "") and found.looked_at, found
