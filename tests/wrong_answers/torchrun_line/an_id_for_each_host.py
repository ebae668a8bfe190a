# wrong: the rendezvous id holds the host's name, so that no two hosts meet
# told: The hosts give the job different names


def torchrun_line(host, hosts, port, job, program):
    line = f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d"
    endpoint = f"{next(iter(hosts))}:{port}"
    return [*line.split(), "--rdzv-endpoint", endpoint, "--rdzv-id", f"{job}-{host}", *program]
