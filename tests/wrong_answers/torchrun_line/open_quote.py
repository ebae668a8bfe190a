# wrong: a quote that has no end
# told: Which quote is opened but not closed?


def torchrun_line(host, hosts, port, job, program):
    return f"torchrun --nnodes={len(hosts)} --rdzv-endpoint='{next(iter(hosts))}:{port} train.py"
