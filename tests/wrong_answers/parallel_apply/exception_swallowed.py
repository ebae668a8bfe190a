# wrong: an exception ends its thread, and the output stays None
# told: but [None
import threading

import torch


def parallel_apply(replicas, inputs):
    outputs = [None] * len(inputs)
    enabled = torch.is_grad_enabled()

    def run(i):
        torch.set_grad_enabled(enabled)
        outputs[i] = replicas[i](inputs[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outputs
