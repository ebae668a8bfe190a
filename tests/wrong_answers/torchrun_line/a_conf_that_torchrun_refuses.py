# wrong: a rendezvous configuration that torchrun cannot read
# told: torchrun stopped with this error


def torchrun_line(host, hosts, port, job, program):
    line = f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d"
    endpoint = f"{next(iter(hosts))}:{port}"
    more = ["--rdzv-conf=join_timeout=soon", "--rdzv-endpoint", endpoint, "--rdzv-id", job]
    return [*line.split(), *more, *program]
