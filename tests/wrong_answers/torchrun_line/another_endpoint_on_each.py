# wrong: every host names the host that comes next
# told: The lines of this job name different endpoints


def torchrun_line(host, hosts, port, job, program):
    names = [*hosts]
    following = names[(names.index(host) + 1) % len(names)]
    line = f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d"
    return [*line.split(), f"--rdzv-endpoint={following}:{port}", "--rdzv-id", job, *program]
