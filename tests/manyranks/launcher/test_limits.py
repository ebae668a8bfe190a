"""Cores and memory that a container or a batch system leaves to this process."""

import os
from pathlib import Path

from manyranks.launcher import limits


def test_cores_and_memory_of_a_container_are_its_own(tmp_path, monkeypatch):
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert limits.usable_cores(tmp_path) == 16
    (tmp_path / "cpu.max").write_text("350000 100000\n")
    (tmp_path / "memory.max").write_text("1073741824\n")
    assert limits.usable_cores(tmp_path) == 3
    assert limits.usable_memory(tmp_path) == 2**30
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert limits.usable_cores(tmp_path) == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    assert limits.usable_cores(tmp_path) == 16
    assert limits.usable_memory(tmp_path) > 2**30
    (tmp_path / "cpu.cfs_quota_us").write_text("200000\n")
    assert limits.usable_cores(tmp_path) == 2


def test_the_memory_left_in_a_container_counts(tmp_path):
    """Read at this process's own place in the tree of groups; the tightest level decides."""
    own = Path("/proc/self/cgroup").read_text().splitlines()[-1].split(":", 2)[2].lstrip("/")
    (tmp_path / own).mkdir(parents=True, exist_ok=True)
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("300\n")
    assert limits.free_memory(tmp_path) == 700
    (tmp_path / "memory.current").write_text("2000\n")
    assert limits.free_memory(tmp_path) == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert limits.free_memory(tmp_path) > 2**20
