"""Processes that have the GPUs' device files open, and the live containers of a pod.

The list of holders explains a refusal of the kernel; decisions rest on the kernel's answer alone
(docs/invariants.md#i5).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from libs.contracts.reports import Holder
from libs.host.tree import Tree, Unreadable, number

DEVICE: Final = "/dev/nvidia"
TICKS: Final = 100
"""Ticks per second in `/proc/<pid>/stat` (USER_HZ), the same on all supported architectures."""

_CGROUP: Final = re.compile(
    r"[0-9]+:[^:]*:(?:/[^/]*){0,5}?/(?:[^/]*-)?kubepods(?:\.slice)?"
    r"(?:/(?:[^/]*-)?(?:burstable|besteffort|guaranteed)(?:\.slice)?)?"
    r"/(?:[^/]*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
    r"(?:/(?:[a-z-]*-)?([0-9a-f]{64})(?:\.scope)?)?(?:/.*)?"
)
"""A cgroup that a kubelet makes for a pod, below its own root.

The uid of a static pod, which the kubelet reads from a file, is a hash without dashes. What is
below the container's own cgroup is the container's to name.
"""
_UNIT: Final = re.compile(
    r"[0-9]+:(?:name=systemd)?:(?:/[^/]*)*?/system\.slice/([\w@:.\\-]+\.service)(?:/.*)?"
)


class ContainerRef(NamedTuple):
    """The container of a process; both fields are empty for a process outside of pods."""

    pod_uid: str
    container_id: str


def holders(tree: Tree) -> tuple[Holder, ...]:
    """Return the processes that have a GPU device file open, by pid."""
    found = (_holder(tree, pid) for pid in _processes(tree))
    return tuple(sorted(filter(None, found), key=lambda holder: holder.pid))


def containers(tree: Tree, pod_uid: str) -> tuple[str, ...]:
    """Return the ids of this pod's containers in which a process lives."""
    refs = (_container_of(tree, pid) for pid in _processes(tree))
    return tuple(sorted({ref.container_id for ref in refs if ref.pod_uid == pod_uid}))


def container_starts(tree: Tree, pod_uid: str) -> Mapping[str, float]:
    """Return when the first process of each live container of this pod started, in unix seconds."""
    boot_time = _boot_time(tree)
    starts: dict[str, float] = {}
    for pid in _processes(tree):
        ref = _container_of(tree, pid)
        uptime = _started_after_boot(tree, pid)
        if ref.pod_uid == pod_uid and boot_time is not None and uptime is not None:
            known = starts.get(ref.container_id, boot_time + uptime)
            starts[ref.container_id] = min(known, boot_time + uptime)
    return starts


def unit_of(tree: Tree, pid: int) -> str:
    """Return the unit of systemd in which a process runs; empty if it runs in none."""
    lines = (tree.read_text(f"/proc/{pid}/cgroup") or "").splitlines()
    found = (_UNIT.fullmatch(line) for line in lines)
    return next((each[1] for each in found if each), "")


def _boot_time(tree: Tree) -> int | None:
    for line in (tree.read_text("/proc/stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "btime":
            return number(value)
    return None


def _started_after_boot(tree: Tree, pid: str) -> float | None:
    """Return the seconds from boot to the start of a process."""
    # The process name may contain blanks and brackets: the fields begin after the last bracket.
    fields = (tree.read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    ticks = number(fields[19]) if len(fields) > 19 else None
    return None if ticks is None else ticks / TICKS


def _processes(tree: Tree) -> Iterator[str]:
    return (name for name in tree.names("/proc") if number(name) is not None)


def _holder(tree: Tree, pid: str) -> Holder | None:
    try:
        links = tree.links(f"/proc/{pid}/fd")
    except Unreadable:  # a holder missing from the list hides a reason, never a verdict
        return None
    devices = {link for link in links if link.startswith(DEVICE)}
    if not devices:
        return None
    ref = _container_of(tree, pid)
    return Holder(
        pid=int(pid),
        comm=tree.word(f"/proc/{pid}/comm") or "",
        devices=tuple(sorted(devices)),
        pod_uid=ref.pod_uid,
        container_id=ref.container_id,
    )


def _container_of(tree: Tree, pid: str) -> ContainerRef:
    """Read the container from the process's cgroup, `…/kubepods…/pod<uid>/<container>`.

    The uid has dashes, or underscores with the systemd cgroup driver.
    """
    for line in (tree.read_text(f"/proc/{pid}/cgroup") or "").splitlines():
        if found := _CGROUP.fullmatch(line):
            return ContainerRef(found[1].replace("_", "-"), found[2] or "")
    return ContainerRef("", "")
