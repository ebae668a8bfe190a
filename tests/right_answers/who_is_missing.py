# %% by a table of rows, excusing ranks that wait elsewhere
def who_is_missing(dumps, groups):
    waiting = {}
    table = {}
    for rank, entries in enumerate(dumps):
        for entry in entries:
            group = entry["process_group"][0]
            table.setdefault((group, entry["collective_seq_id"]), {})[rank] = entry
            if not entry["retired"]:
                waiting[rank] = group
    for group, members in groups.items():
        number = 1
        while row := table.get((group, number)):
            names = [row[rank]["profiling_name"] for rank in members if rank in row]
            name = max(names, key=names.count)
            came = [r for r in members if r in row and row[r]["profiling_name"] == name]
            missing = [rank for rank in members if rank not in came]
            if any(waiting.get(rank, group) != group for rank in missing):
                break
            if missing:
                frames = row[came[0]]["frames"]
                line = next(f["line"] for f in frames if f["filename"].endswith("train.py"))
                return missing, name.split(":")[1], line
            number += 1
    return None
