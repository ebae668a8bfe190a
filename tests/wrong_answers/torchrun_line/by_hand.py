# wrong: the static rendezvous, with a number for each host
# told: the backend is `static`


def torchrun_line(host, hosts, port, job, program):
    head, *_ = hosts
    rank = [*hosts].index(host)
    line = f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --node-rank={rank}"
    return [*line.split(), "--master-addr", head, "--master-port", str(port), *program]
