# wrong: the endpoint is localhost
# told: On every host, this name means that host itself


def torchrun_line(host, hosts, port, job, program):
    line = f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d"
    return [*line.split(), f"--rdzv-endpoint=localhost:{port}", f"--rdzv-id={job}", *program]
