# wrong: adds a number to a text
# told: A number is not a string


def torchrun_line(host, hosts, port, job, program):
    nodes = "--nnodes=" + len(hosts)
    return ["torchrun", nodes, *program]
