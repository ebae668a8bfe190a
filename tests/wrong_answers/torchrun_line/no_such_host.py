# wrong: the endpoint is the list of all hosts
# told: Is this the name of one of the job's hosts


def torchrun_line(host, hosts, port, job, program):
    line = f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d"
    return [*line.split(), f"--rdzv-endpoint={','.join(hosts)}:{port}", "--rdzv-id", job, *program]
