# wrong: all jobs have the same rendezvous id
# told: Another job may have this name as well


def torchrun_line(host, hosts, port, job, program):
    line = f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d"
    endpoint = f"{next(iter(hosts))}:{port}"
    return [*line.split(), "--rdzv-endpoint", endpoint, "--rdzv-id", "my_job", *program]
