# wrong: the first host of a set of names, which is another one in every process
# told: A set of strings has another order in every process


def torchrun_line(host, hosts, port, job, program):
    first = next(iter(set(hosts)))
    line = f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d"
    return [*line.split(), f"--rdzv-endpoint={first}:{port}", f"--rdzv-id={job}", *program]
