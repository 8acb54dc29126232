"""The cgroups of a real node or of Docker, of the first version."""

import os
import time
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
CONTROLLERS: Final = (
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "devices",
    "freezer",
    "blkio",
    "pids",
)
_CPU_SHARES: Final = 16 * 1024
"""A node has many processes; as one group it would get as much of a busy machine as one test."""
_WITHIN: Final = 300.0
"""Seconds for the kernel to end the last process, on the slowest machine."""
_CHECK_EVERY: Final = 0.05


def create_cgroups(name: str) -> list[Path]:
    """Return the files that take a process into the groups of this name."""
    files: list[Path] = []
    for controller in CONTROLLERS:
        folder = CGROUPS / controller / name
        folder.mkdir(exist_ok=True)
        if controller == "cpuset":  # empty in a new group, which then admits no process
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (folder / setting).write_text((CGROUPS / controller / setting).read_text())
        if controller == "cpu":
            (folder / "cpu.shares").write_text(str(_CPU_SHARES))
        files.append(folder / "tasks")
    return files


def remove_cgroups(name: str) -> None:
    """Remove the groups of this name, of every hierarchy, once their last process is gone."""
    for folder in CGROUPS.glob(f"*/{name}"):
        deadline = time.monotonic() + _WITHIN
        while folder.exists():
            try:
                for below, _, _ in os.walk(folder, topdown=False):
                    Path(below).rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_CHECK_EVERY)
