# %% spans joined and cut, without sets
def joined(spans):
    found = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return found


def without(spans, others):
    left = []
    for start, end in joined(spans):
        for low, high in joined(others):
            if high <= start or low >= end:
                continue
            if low > start:
                left.append((start, low))
            start = max(start, min(high, end))
        if start < end:
            left.append((start, end))
    return left


def total(spans):
    return sum(end - start for start, end in joined(spans))


def read_the_timeline(events):
    of = {}
    for rank, kind, start, end in events:
        of.setdefault((rank, kind), []).append((start, end))
    ranks = sorted({event[0] for event in events})
    step = max(e[3] for e in events) - min(e[2] for e in events)
    busy = {r: of.get((r, "compute"), []) + of.get((r, "loading"), []) for r in ranks}
    calls = {r: sorted(of.get((r, "call"), [])) for r in ranks}
    idle = sum(total(without(calls[r], busy[r])) for r in ranks)
    if idle < step * len(ranks) / 10:
        return None
    waits = {}
    for n in range(len(calls[ranks[0]])):
        last = max(ranks, key=lambda r: calls[r][n][0])
        for r in ranks:
            waits.setdefault((last, r), []).append((calls[r][n][0], calls[last][n][0]))
    cut = {pair: without(spans, busy[pair[1]]) for pair, spans in waits.items()}
    waiting = sum(
        total([s for (_, r), spans in cut.items() if r == own for s in spans]) for own in ranks
    )
    if 2 * waiting <= idle:
        return (None, "network")
    late = max(
        ranks, key=lambda r: sum(total(spans) for (last, _), spans in cut.items() if last == r)
    )
    computes = [total(of.get((r, "compute"), [])) for r in ranks]
    loads = [total(without(of.get((r, "loading"), []), of.get((r, "compute"), []))) for r in ranks]
    own = ranks.index(late)
    more = [
        (len(ranks) * one[own] - sum(one), name)
        for one, name in ((computes, "compute"), (loads, "loading"))
    ]
    return [late, max(more)[1]]


# %% a table of milliseconds
import numpy as np


def read_the_timeline(events):
    ranks = 1 + max(event[0] for event in events)
    begun, over = min(e[2] for e in events), max(e[3] for e in events)
    at = {kind: np.zeros((ranks, over - begun), bool) for kind in ("compute", "loading", "call")}
    for rank, kind, start, end in events:
        at[kind][rank, start - begun : end - begun] = True
    free = ~at["compute"] & ~at["loading"]
    idle = (at["call"] & free).sum()
    if idle < 0.1 * ranks * (over - begun):
        return None
    entered = np.array(
        [sorted(e[2] - begun for e in events if e[:2] == (rank, "call")) for rank in range(ranks)]
    )
    waits = np.zeros((ranks, ranks, over - begun), bool)
    for starts in entered.T:
        for rank in range(ranks):
            waits[starts.argmax(), rank, starts[rank] : starts.max()] = True
    waits &= free
    if idle - waits.any(axis=0).sum() >= waits.any(axis=0).sum():
        return None, "network"
    late = int(waits.sum(axis=(1, 2)).argmax())
    others = np.arange(ranks) != late
    spent = {"compute": at["compute"], "loading": at["loading"] & ~at["compute"]}
    sums = {cause: one.sum(axis=1) for cause, one in spent.items()}
    return late, max(sums, key=lambda cause: sums[cause][late] - sums[cause][others].mean())
