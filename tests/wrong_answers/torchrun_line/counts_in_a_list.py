# wrong: takes hosts for a list of names and counts
# told: `hosts` is a dict


def torchrun_line(host, hosts, port, job, program):
    return ["torchrun", f"--nnodes={len(hosts)}", f"--nproc-per-node={hosts[0]}", *program]
