# wrong: the command from before torchrun
# told: torch.distributed.launch is the old way


def torchrun_line(host, hosts, port, job, program):
    line = f"python -m torch.distributed.launch --nnodes={len(hosts)} --use-env"
    return [*line.split(), "--nproc-per-node", str(hosts[host]), *program]
