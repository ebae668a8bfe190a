"""How much of the machine this process may use: cores and memory.

Containers and batch systems such as Slurm set limits by affinity and by control groups (cgroups),
which Linux has in versions 1 and 2. The argument `cgroups` is the folder that holds them.
"""

import os
from pathlib import Path

import psutil

CGROUPS = Path("/sys/fs/cgroup")
MEMORY_FILES = (  # limit and use, in version 2 and version 1
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def usable_cores(cgroups: Path = CGROUPS) -> int:
    """Cores that this process may keep busy: affinity, capped by the control groups' CPU quotas."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have none
        cores = os.cpu_count() or 1
    for folder in _groups(cgroups, "cpu"):
        v1 = f"{read_text(folder / 'cpu.cfs_quota_us')} {read_text(folder / 'cpu.cfs_period_us')}"
        for text in (read_text(folder / "cpu.max"), v1):
            parts = text.split()  # quota and period in microseconds
            if len(parts) == 2 and all(part.isdigit() for part in parts):  # else max, -1 or absent
                cores = min(cores, int(parts[0]) // int(parts[1]))
    return max(1, cores)


def usable_memory(cgroups: Path = CGROUPS) -> int:
    """Bytes that this process may use at most: the machine's, or the control groups' limit."""
    limits = [limit for limit, _ in _memory(cgroups)]
    return min([psutil.virtual_memory().total, *limits])  # v1 writes 2^63 where there is no limit


def free_memory(cgroups: Path = CGROUPS) -> int:
    """Bytes that are free now: the machine's, or what the control groups leave if that is less."""
    free = [limit - used for limit, used in _memory(cgroups)]
    return max(0, min([psutil.virtual_memory().available, *free]))


def read_text(path: Path) -> str:
    """The stripped text of a file, "" if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _memory(cgroups: Path) -> list[tuple[int, int]]:
    """(limit, use) in bytes of every group above this process that has a limit."""
    pairs = []
    for folder in _groups(cgroups, "memory"):
        for limit, used in MEMORY_FILES:
            limit, used = read_text(folder / limit), read_text(folder / used)
            if limit.isdigit():  # else "max", or absent
                pairs.append((int(limit), int(used or 0)))
    return pairs


def _groups(cgroups: Path, controller: str) -> list[Path]:
    """The folders of this process's control groups, innermost first, versions 2 and 1."""
    folders = []
    for line in read_text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = cgroups / controllers if controllers else cgroups
        inner = root / path.strip("/")
        folders += [inner, *(parent for parent in inner.parents if parent.is_relative_to(root))]
    return folders or [cgroups]
