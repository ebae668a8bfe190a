# %% buckets first, then times
def choose_bucket(gradients, limits, latency, speed):
    best = None
    for limit in sorted(limits, reverse=True):
        buckets, bytes_, ready = [], 0, 0
        for moment, size in gradients:
            bytes_ += size
            ready = moment
            if bytes_ >= limit:
                buckets.append((ready, bytes_))
                bytes_ = 0
        if bytes_:
            buckets.append((ready, bytes_))
        end = 0
        for ready, bytes_ in buckets:
            end = max(end, ready) + (latency + bytes_ / speed)
        if best is None or end < best["seconds"] - 1e-9:
            best = {"limit": limit, "seconds": end}
    return best


# %% backwards from the last
import numpy as np


def choose_bucket(gradients, limits, latency, speed):
    ready = np.array([one for one, _ in gradients])
    ends = np.cumsum([size for _, size in gradients])

    def arrival(limit):
        free, sent, start = 0.0, 0, 0
        while start < len(ready):
            index = min(np.searchsorted(ends, sent + limit), len(ready) - 1)
            free = max(free, ready[index]) + latency + (ends[index] - sent) / speed
            sent, start = ends[index], index + 1
        return free

    times = [arrival(limit) for limit in limits]
    fastest = min(times)
    return {
        "limit": max(limit for limit, one in zip(limits, times) if np.isclose(one, fastest)),
        "seconds": np.float64(fastest),
    }
