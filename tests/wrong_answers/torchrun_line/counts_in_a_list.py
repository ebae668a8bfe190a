# wrong: takes hosts for a list of counts
# told: `hosts` is a dict


def torchrun_line(host, hosts, port, job, program):
    count = hosts[0]
    return ["torchrun", "--nproc-per-node", str(count), *program]
