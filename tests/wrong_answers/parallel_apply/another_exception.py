# wrong: the caller cannot know what went wrong
# told: RuntimeError: a replica has failed
# told: This is not the replica
import threading

import torch


def parallel_apply(replicas, inputs):
    outputs = {}
    enabled = torch.is_grad_enabled()

    def run(i):
        torch.set_grad_enabled(enabled)
        outputs[i] = replicas[i](inputs[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(outputs) < len(inputs):
        raise RuntimeError("a replica has failed")
    return [outputs[i] for i in range(len(inputs))]
