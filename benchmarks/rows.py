"""The rows of the benchmark, in the order in which they are measured and shown."""

from benchmarks import (
    after_faults,
    ddp_speed_up,
    doctor_time,
    exercise_checks,
    large_plan,
    large_result,
    launch_speed,
    many_launches,
    many_ranks,
    notebook_times,
    ordered_network,
    players,
    recorded_run,
    room,
    step_overhead,
)

ROWS = {
    "launch": launch_speed.measure,
    "many-launches": many_launches.measure,
    "faults": after_faults.measure,
    "step": step_overhead.measure,
    "ddp": ddp_speed_up.measure,
    "64-ranks": many_ranks.measure,
    "large-result": large_result.measure,
    "plan": large_plan.measure,
    "dp-ddp": recorded_run.measure,
    "network": ordered_network.measure,
    "doctor": doctor_time.measure,
    "players": players.measure,
    "exercises": exercise_checks.measure,
    "room": room.measure,
    "notebooks": notebook_times.measure,
}
