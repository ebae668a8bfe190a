"""The exercises, one file each: the task, the solution, the hints, and the check that judges.

`CHAPTERS` lists them in the order of the notebooks.
"""

from importlib import import_module

CHAPTERS = {
    "start_here": ["mean_over_ranks"],
    "data_parallel": ["weighted_gradients"],
    "further_inside_data_parallel": ["parallel_apply"],
    "further_what_a_replica_keeps": ["scatter_batch"],
    "distributed_data_parallel": ["average_gradients"],
    "further_constructor": ["broadcast_parameters"],
    "further_inside_ddp": ["bucketed_average"],
    "further_the_batch": ["accumulate", "global_loss"],
    "further_mixed_precision": ["which_dtype", "mixed_step"],
    "process_groups": ["where_is", "row_and_column_groups"],
    "further_groups_and_meshes": ["hierarchical_all_reduce"],
    "further_waiting": ["once_per_run"],
    "samplers": ["my_indices", "shuffled_every_epoch"],
    "further_loading_data": ["iterable_shard"],
    "further_resuming": ["resume_indices"],
    "further_uneven_work": ["exact_accuracy", "even_work"],
    "further_your_own_program": ["to_ddp"],
    "collectives": ["name_the_collective"],
    "further_cost_of_messages": ["metrics_in_one"],
    "further_objects_and_mistakes": ["gather_uneven"],
    "further_point_to_point": ["tree_broadcast"],
    "further_ring": ["ring_all_reduce"],
    "fully_sharded": ["shard_and_pad", "unshard", "choose_wraps"],
    "further_by_hand": ["fsdp_step"],
    "further_strategies": ["memory_per_rank"],
    "many_machines": ["torchrun_line", "fix_job_script"],
    "further_what_it_costs": ["predict_scaling"],
    "checkpoint_and_recover": ["save_atomically", "stop_together"],
    "further_elastic": ["resume_exactly"],
    "further_goodput": ["checkpoint_interval"],
    "when_it_hangs": ["who_is_missing", "find_the_straggler"],
    "further_silently_wrong": [
        *("same_on_all_ranks", "fix_uneven_batches", "fix_sharded_training"),
    ],
    "further_sharded_checkpoints": ["full_state", "load_resharded"],
    "make_it_fast": ["mfu", "overlap_with_hooks"],
    "further_profiler": ["read_the_timeline"],
    "further_fewer_bytes": ["compress_gradients"],
    "further_fewer_messages": ["choose_bucket", "every_h_steps"],
}
# What an exercise's file imports from here; found when first used, for the ranks need one of them.
HOMES = {
    "DistributedCheck": "check",
    "SingleProcessCheck": "check",
    "Comparison": "check",
    "Observation": "check",
    "Pattern": "check",
    "ANY": "check",
    "Edit": "check",
    "edit": "check",
    "body": "check",
    "CheckFailed": "check",
    "in_words": "values",
}
__all__ = ["CHAPTERS", *HOMES]


def __getattr__(name: str):
    """Import one of the names above from its module (PEP 562)."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"{__name__}.judging.{HOMES[name]}"), name)
    return globals()[name]
