# %% the rank with the fewest entries, in the newest call of the others
# told: None came back, and ranks wait
def who_is_missing(dumps, groups):
    counts = [len(entries) for entries in dumps]
    if len(set(counts)) == 1:
        return None
    last = dumps[counts.index(max(counts))][-1]
    missing = [rank for rank, count in enumerate(counts) if count == min(counts)]
    line = next(f["line"] for f in last["frames"] if f["filename"] == "train.py")
    return missing, last["profiling_name"].removeprefix("gloo:"), line


# %% the world only, and the backend left in the name
# told: Which call of which group did they never enter
def who_is_missing(dumps, groups):
    rows = {}
    for rank, entries in enumerate(dumps):
        for entry in entries:
            key = entry["process_group"][0], entry["collective_seq_id"]
            rows.setdefault(key, {})[rank] = entry
    for (group, _), row in sorted(rows.items(), key=lambda one: one[0][1]):
        names = [entry["profiling_name"] for entry in row.values()]
        name = max(names, key=names.count)
        came = [rank for rank, entry in row.items() if entry["profiling_name"] == name]
        missing = [rank for rank in groups[group] if rank not in came]
        if missing:
            frames = row[came[0]]["frames"]
            return missing, name, next(f["line"] for f in frames if f["filename"] == "train.py")
    return None


# %% nobody missing is an empty list
# told: All ranks have made all calls here
def who_is_missing(dumps, groups):
    waiting = {r: e for r, own in enumerate(dumps) for e in own if not e["retired"]}
    if waiting:
        for group, members in groups.items():
            own = {r: [e for e in dumps[r] if e["process_group"][0] == group] for r in members}
            for number in range(max(map(len, own.values()))):
                row = {r: calls[number] for r, calls in own.items() if number < len(calls)}
                names = [e["profiling_name"] for e in row.values()]
                name = max(names, key=names.count)
                came = [r for r, e in row.items() if e["profiling_name"] == name]
                missing = [r for r in members if r not in came]
                if any(r in waiting and waiting[r]["process_group"][0] != group for r in missing):
                    break
                if missing:
                    frames = row[came[0]]["frames"]
                    line = next(f["line"] for f in frames if f["filename"] == "train.py")
                    return missing, name.removeprefix("gloo:"), line
    return [], "", 0
