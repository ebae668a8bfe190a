# wrong: the program and its arguments are quoted as one word
# told: have become one word
import shlex


def torchrun_line(host, hosts, port, job, program):
    words = shlex.quote(" ".join(program))
    return (
        f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d "
        f"--rdzv-endpoint={next(iter(hosts))}:{port} --rdzv-id={job} {words}"
    )
