# wrong: begins with a scheduler's command
# told: Which command starts the ranks, and is it the first word?


def torchrun_line(host, hosts, port, job, program):
    return ["srun", "torchrun", f"--nnodes={len(hosts)}", *program]
