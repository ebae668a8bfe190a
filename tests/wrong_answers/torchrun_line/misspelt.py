# wrong: an option that torchrun does not have
# told: Is each option spelled as in `torchrun --help`


def torchrun_line(host, hosts, port, job, program):
    line = f"torchrun --nodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d"
    endpoint = f"{next(iter(hosts))}:{port}"
    return [*line.split(), "--rdzv-endpoint", endpoint, "--rdzv-id", job, *program]
