# wrong: join gives up after half a second
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
