# wrong: takes what join returns for what the thread has returned
# told: How does an output leave its thread
import threading


def parallel_apply(replicas, inputs):
    pairs = zip(replicas, inputs, strict=False)
    threads = [threading.Thread(target=replica, args=(rows,)) for replica, rows in pairs]
    for thread in threads:
        thread.start()
    return [thread.join() for thread in threads]
