# wrong: torchrun's options come after the program, which gets them as arguments
# told: Where must torchrun's own options stand?


def torchrun_line(host, hosts, port, job, program):
    endpoint = f"{next(iter(hosts))}:{port}"
    return [
        *("torchrun", f"--nproc-per-node={hosts[host]}", *program, f"--nnodes={len(hosts)}"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={job}"),
    ]
