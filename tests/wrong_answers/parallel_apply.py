# %% one replica after the other, without threads
# told: They took turns
edit("list(pool.map(run, replicas, inputs))", "list(map(run, replicas, inputs))")

# %% two threads for any number of replicas
# told: How many threads may work at the same time
# told: at most 2 ran
edit("Executor(len(replicas))", "Executor(max_workers=2)")

# %% join gives up after half a second
# told: however long that takes
import threading


def parallel_apply(replicas, inputs):
    outputs, errors = [None] * len(inputs), []
    enabled = torch.is_grad_enabled()

    def run(i):
        torch.set_grad_enabled(enabled)
        try:
            outputs[i] = replicas[i](inputs[i])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=0.5)
    if errors:
        raise errors[0]
    return outputs


# %% a lambda reads i and rows when it runs, and the loop has gone on by then
# told: when it is defined or when it runs?
edit(
    "return list(pool.map(run, replicas, inputs))",
    """jobs = []
        for i, rows in enumerate(inputs):
            jobs.append(pool.submit(lambda: run(replicas[i], rows)))
        return [job.result() for job in jobs]""",
)

# %% map returns an iterator
# told: map gives an iterator
edit("list(pool.map(run, replicas, inputs))", "pool.map(run, replicas, inputs)")

# %% a future is not yet an output
# told: which method of a future
edit(
    "list(pool.map(run, replicas, inputs))",
    "[pool.submit(run, *work) for work in zip(replicas, inputs)]",
)

# %% who is done first comes first
# told: Which came first in this list?
edit(
    "return list(pool.map(run, replicas, inputs))",
    """from concurrent.futures import as_completed

        jobs = [pool.submit(run, *work) for work in zip(replicas, inputs)]
        return [job.result() for job in as_completed(jobs)]""",
)

# %% the exception is one of the outputs
# told: outcome: [ValueError
edit(
    "            return replica(rows)",
    """            try:
                return replica(rows)
            except Exception as error:
                return error""",
)

# %% another type and another text
# told: RuntimeError: ValueError
# told: This is not the replica's own exception
edit(
    "            return replica(rows)",
    """            try:
                return replica(rows)
            except Exception as error:
                raise RuntimeError(repr(error))""",
)

# %% the threads know nothing of the caller's no_grad
# told: A new thread starts with gradients on
edit("list(pool.map(run, replicas, inputs))", "list(pool.map(lambda m, x: m(x), replicas, inputs))")

# %% no_grad, whatever the caller wants
# told: What has separated the outputs from the weights?
edit("set_grad_enabled(wanted)", "no_grad()")

# %% calls a copy of each replica, whose gradients would be lost
# told: and no copy is needed
edit("return replica(rows)", "return __import__('copy').deepcopy(replica)(rows)")

# %% calls the replica, and hands its output to submit
# told: submit takes the replica and its input
edit(
    "list(pool.map(run, replicas, inputs))",
    "[pool.submit(run(*work)).result() for work in zip(replicas, inputs)]",
)
