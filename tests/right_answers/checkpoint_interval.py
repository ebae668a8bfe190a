# %% in hours, with numpy
import numpy as np


def checkpoint_interval(save_seconds, gpus, gpu_hours):
    save = save_seconds / 3600
    mean = np.float64(gpu_hours) / gpus
    interval = np.sqrt(2 * mean * save)
    return {"lost": np.sqrt(2 * save / mean), "interval": 3600 * interval}


# %% tensors, and the failures a second
import torch


def checkpoint_interval(save_seconds, gpus, gpu_hours):
    rate = torch.tensor(gpus / (3600 * gpu_hours), dtype=torch.float64)
    interval = (2 * save_seconds / rate).sqrt()
    return {"interval": interval, "lost": save_seconds / interval + rate * interval / 2}
