"""What the pods of a node use, as its machine accounts for it."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from libs.testing.realnodes.cgroups import CGROUPS
from libs.testing.realnodes.node import Node

MIB = 1024
_PAUSE: Final = "sleep"
"""The process that keeps a pod's namespaces: without it the whole pod is made anew."""


def proportional_mib(node: Node, pods: Iterable[str]) -> dict[str, float]:
    """Return memory by the uid of a pod; what processes share is divided among them."""
    return {uid: sum(map(_proportional_kib, processes_of(node, uid))) / MIB for uid in pods}


def cpu_seconds(node: Node, pods: Iterable[str]) -> dict[str, float]:
    """Return what pods have used so far, by uid."""
    return {
        uid: sum(
            int((folder / "cpuacct.usage").read_text()) / 1e9
            for folder in _cgroups(node, "cpuacct", uid)
        )
        for uid in pods
    }


def waiting_seconds(node: Node, pods: Iterable[str]) -> dict[str, float]:
    """Return what their waits for XIDs have used so far, by the uid of a pod.

    In the stand-in for NVIDIA's library that is a loop, while a real driver sleeps in the kernel.
    """
    return {uid: sum(map(_waiting_seconds, processes_of(node, uid))) for uid in pods}


def _waiting_seconds(pid: int) -> float:
    """Return the CPU seconds of the last thread that an NVML process began: it waits for XIDs."""
    process = Path(f"/proc/{pid}")
    if b"libs.host.gpus.child" not in (process / "cmdline").read_bytes():
        return 0.0
    thread = max((process / "task").iterdir(), key=lambda folder: int(folder.name))
    return int((thread / "schedstat").read_text().split()[0]) / 1e9


def _cgroups(node: Node, controller: str, uid: str) -> Iterator[Path]:
    return (CGROUPS / controller / node.folder.name).rglob(f"pod{uid}")


def processes_of(node: Node, uid: str) -> set[int]:
    """Return the processes of a pod, by their ids on this machine."""
    return {
        int(line)
        for folder in _cgroups(node, "memory", uid)
        for file in folder.rglob("cgroup.procs")
        for line in file.read_text().split()
    }


def container_processes(node: Node, uid: str) -> set[int]:
    """Return the processes of a pod's containers, without the one that keeps its namespaces."""
    found: set[int] = set()
    for pid in processes_of(node, uid):
        with suppress(OSError):  # it has ended
            if Path(f"/proc/{pid}/comm").read_text().strip() != _PAUSE:
                found.add(pid)
    return found


def kill_containers(node: Node, uid: str) -> None:
    """Kill what runs in a pod's containers; the kubelet starts them again."""
    for pid in container_processes(node, uid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _proportional_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
