# wrong: --standalone on each host, which makes a job of each
# told: --standalone makes a whole job of one host


def torchrun_line(host, hosts, port, job, program):
    return ["torchrun", "--standalone", f"--nproc-per-node={hosts[host]}", *program]
