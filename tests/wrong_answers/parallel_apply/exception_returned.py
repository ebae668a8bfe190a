# wrong: the exception is one of the outputs
# told: but [ValueError
import threading

import torch


def parallel_apply(replicas, inputs):
    outputs = [None] * len(inputs)
    enabled = torch.is_grad_enabled()

    def run(i):
        torch.set_grad_enabled(enabled)
        try:
            outputs[i] = replicas[i](inputs[i])
        except Exception as error:
            outputs[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outputs
