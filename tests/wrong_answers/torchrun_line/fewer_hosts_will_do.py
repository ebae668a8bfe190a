# wrong: the job may begin with one host
# told: With a range, torchrun starts with fewer hosts


def torchrun_line(host, hosts, port, job, program):
    line = f"torchrun --nnodes=1:{len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d"
    endpoint = f"{next(iter(hosts))}:{port}"
    return [*line.split(), "--rdzv-endpoint", endpoint, "--rdzv-id", job, *program]
