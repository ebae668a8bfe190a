# wrong: each host names itself as the endpoint
# told: Each host waits at its own address


def torchrun_line(host, hosts, port, job, program):
    return [
        "torchrun",
        f"--nnodes={len(hosts)}",
        f"--nproc-per-node={hosts[host]}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={host}:{port}",
        f"--rdzv-id={job}",
        *program,
    ]
