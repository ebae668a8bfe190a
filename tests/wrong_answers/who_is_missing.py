# %% the rank with the fewest entries, in the newest call of the others
# told: Go through the rows of each group's table
def who_is_missing(dumps, groups):
    counts = [len(entries) for entries in dumps]
    if len(set(counts)) == 1:
        return None
    last = dumps[counts.index(max(counts))][-1]
    missing = [rank for rank, count in enumerate(counts) if count == min(counts)]
    line = next(f["line"] for f in last["frames"] if f["filename"] == "train.py")
    return missing, last["profiling_name"].removeprefix("gloo:"), line


# %% those without an entry that is not retired
# told: Go through the rows of each group's table
def who_is_missing(dumps, groups):
    waits = {
        rank: entry
        for rank, entries in enumerate(dumps)
        for entry in entries
        if not entry["retired"]
    }
    if not waits:
        return None
    missing = [rank for rank in range(len(dumps)) if rank not in waits]
    entry = next(iter(waits.values()))
    line = next(f["line"] for f in entry["frames"] if f["filename"] == "train.py")
    return missing, entry["profiling_name"].removeprefix("gloo:"), line


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
