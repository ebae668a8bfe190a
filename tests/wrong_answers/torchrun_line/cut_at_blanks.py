# wrong: words with blanks in them are cut by the shell
# told: One word has become several


def torchrun_line(host, hosts, port, job, program):
    return (
        f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d "
        f"--rdzv-endpoint={next(iter(hosts))}:{port} --rdzv-id={job} {' '.join(program)}"
    )
