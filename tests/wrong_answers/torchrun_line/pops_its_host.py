# wrong: takes this host out of the caller's dict
# told: Which line changes the caller's dict or list?


def torchrun_line(host, hosts, port, job, program):
    number, head = len(hosts), next(iter(hosts))
    return [
        *f"torchrun --nnodes={number} --nproc-per-node={hosts.pop(host)}".split(),
        *f"--rdzv-backend=c10d --rdzv-endpoint={head}:{port} --rdzv-id={job}".split(),
        *program,
    ]
