# %% one replica after the other, without threads
# told: in the caller's own thread
edit("list(pool.map(run, replicas, inputs))", "list(map(run, replicas, inputs))")


# %% all replicas share one thread
# told: One thread ran all of them
edit("Executor(len(replicas))", "Executor(max_workers=1)")


# %% waits for each thread before it starts the next
# told: The threads took turns
import threading

import torch


def parallel_apply(replicas, inputs):
    outputs = []
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        torch.set_grad_enabled(enabled)
        outputs.append(replica(rows))

    for pair in zip(replicas, inputs, strict=False):
        thread = threading.Thread(target=run, args=pair)
        thread.start()
        thread.join()
    return outputs


# %% two threads for any number of replicas
# told: How many threads may work at the same time
# told: at most 2 ran
edit("Executor(len(replicas))", "Executor(max_workers=2)")


# %% leaves the number of threads to the pool, which has few where there are few processors
# told: at most 5 ran at the same time
edit("Executor(len(replicas))", "Executor()")


# %% join gives up after half a second
# told: join with a timeout returns when the time is over
import threading

import torch


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


# %% keeps the pool for the next call, and with it the threads
# told: a thread was left when the call was over
# told: What ends the threads of a pool?
edit(
    "    with ThreadPoolExecutor(len(replicas)) as pool:\n    ",
    "    torch.pool = pool = ThreadPoolExecutor(len(replicas))\n    if True:\n    ",
)


# %% an exception comes out while other replicas are still running
# told: was still running when
# told: What waits until every thread has ended
edit(
    "    with ThreadPoolExecutor(len(replicas)) as pool:\n        return",
    """    pool = ThreadPoolExecutor(len(replicas))
    try:
        return""",
    "# ends with the shorter list",
    """
    finally:
        pool.shutdown(wait=False)""",
)


# %% a lambda reads i and rows when it runs, and the loop has gone on by then
# told: when it is defined or when it runs?
edit(
    "return list(pool.map(run, replicas, inputs))",
    """jobs = []
        for i, rows in enumerate(inputs):
            jobs.append(pool.submit(lambda: run(replicas[i], rows)))
        return [job.result() for job in jobs]""",
)


# %% every input goes through replica 0
# told: counted from 0: [0
# told: All calls have taken replica 0
edit("run, replicas, inputs", "lambda rows: run(replicas[0], rows), inputs")


# %% map returns an iterator
# told: What makes a list of it?
edit("list(pool.map(run, replicas, inputs))", "pool.map(run, replicas, inputs)")


# %% the outputs stay inside
# told: Does the function return its result, on every path
edit("return list(pool.map(run, replicas, inputs))", "pool.map(run, replicas, inputs)")


# %% a future is not yet an output
# told: Which of its methods returns the output?
edit(
    "list(pool.map(run, replicas, inputs))",
    "[pool.submit(run, *work) for work in zip(replicas, inputs)]",
)


# %% does the work of gather, too
# told: the work of gather
edit("list(pool.map(run, replicas, inputs))", "torch.cat([*pool.map(run, replicas, inputs)])")


# %% who is done first comes first
# told: Which came first in this list?
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    with ThreadPoolExecutor(len(replicas)) as pool:
        jobs = [pool.submit(run, *work) for work in zip(replicas, inputs, strict=False)]
        return [job.result() for job in as_completed(jobs)]


# %% takes what join returns for what the thread has returned
# told: How does an output leave its thread
import threading


def parallel_apply(replicas, inputs):
    pairs = zip(replicas, inputs, strict=False)
    threads = [threading.Thread(target=replica, args=(rows,)) for replica, rows in pairs]
    for thread in threads:
        thread.start()
    return [thread.join() for thread in threads]


# %% the exception is one of the outputs
# told: but [ValueError
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


# %% counts the replicas, not the inputs
# told: There can be fewer inputs than replicas
edit("replicas, inputs))", "replicas, [inputs[i] for i in range(len(replicas))]))")


# %% calls a copy of each replica, whose gradients would be lost
# told: and no copy is needed
edit("return replica(rows)", "return __import__('copy').deepcopy(replica)(rows)")


# %% calls the replica, and hands its output to submit
# told: submit takes the replica and its input
edit(
    "list(pool.map(run, replicas, inputs))",
    "[pool.submit(run(*work)).result() for work in zip(replicas, inputs)]",
)
