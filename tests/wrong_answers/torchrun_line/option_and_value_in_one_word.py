# wrong: an option and its value are one word of the list
# told: an option and its value are two, or one with a = between them


def torchrun_line(host, hosts, port, job, program):
    return [
        "torchrun",
        f"--nnodes {len(hosts)}",
        f"--nproc-per-node {hosts[host]}",
        "--rdzv-backend c10d",
        f"--rdzv-endpoint {next(iter(hosts))}:{port}",
        f"--rdzv-id {job}",
        *program,
    ]
