# wrong: the port is one that this author always takes
# told: The host is right. At which port do they meet?


def torchrun_line(host, hosts, port, job, program):
    line = f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d"
    return [*line.split(), f"--rdzv-endpoint={next(iter(hosts))}:29500", "--rdzv-id", job, *program]
