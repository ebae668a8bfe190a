# wrong: every line says that its host does not open the store
# told: With is_host=false, a host does not open the store


def torchrun_line(host, hosts, port, job, program):
    line = f"torchrun --nnodes={len(hosts)} --nproc-per-node={hosts[host]} --rdzv-backend=c10d"
    meeting = f"--rdzv-endpoint={min(hosts)}:{port} --rdzv-id={job} --rdzv-conf=is_host=false"
    return [*line.split(), *meeting.split(), *program]
