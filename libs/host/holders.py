"""Who has the GPUs' device files open, and which containers of a pod still live.

The list explains what the kernel decided; it decides nothing itself (docs/invariants.md#i5).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from libs.contracts.reports import Holder
from libs.host.tree import Tree

DEVICE: Final = "/dev/nvidia"
TICKS: Final = 100
"""In which parts of a second the kernel tells when a process began, on every Linux we know."""

_POD: Final = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
)
"""Of a pod that the kubelet has from a file of its own, the uid is a hash without dashes."""
_CONTAINER: Final = re.compile(r"([0-9a-f]{64})")


class ContainerRef(NamedTuple):
    """Where the runtime has put a process; both are empty for one of the machine itself."""

    pod_uid: str
    container_id: str


def holders(tree: Tree) -> tuple[Holder, ...]:
    """Every process with one of these files open, by number."""
    found = (_holder(tree, pid) for pid in _processes(tree))
    return tuple(sorted((one for one in found if one), key=lambda one: one.pid))


def containers(tree: Tree, pod_uid: str) -> tuple[str, ...]:
    """Ids of the containers of this pod in which a process lives."""
    places = (_place(tree, pid) for pid in _processes(tree))
    return tuple(sorted({place.container_id for place in places if place.pod_uid == pod_uid}))


def container_starts(tree: Tree, pod_uid: str) -> Mapping[str, float]:
    """When the first process of each living container of this pod began, in unix seconds."""
    booted = _booted(tree)
    starts: dict[str, float] = {}
    for pid in _processes(tree):
        place = _place(tree, pid)
        began = _began(tree, pid)
        if place.pod_uid == pod_uid and booted is not None and began is not None:
            known = starts.get(place.container_id, booted + began)
            starts[place.container_id] = min(known, booted + began)
    return starts


def _booted(tree: Tree) -> float | None:
    for line in (tree.text("/proc/stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "btime" and value.strip().isdigit():
            return float(value)
    return None


def _began(tree: Tree, pid: str) -> float | None:
    """Seconds after the boot. A process may be named anything, so what follows its name counts."""
    fields = (tree.text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return int(fields[19]) / TICKS if len(fields) > 19 and fields[19].isdigit() else None


def _processes(tree: Tree) -> Iterator[str]:
    return (name for name in tree.names("/proc") if name.isdigit())


def _holder(tree: Tree, pid: str) -> Holder | None:
    folder = f"/proc/{pid}/fd"
    links = (tree.link(f"{folder}/{name}") or "" for name in tree.names(folder))
    devices = {link for link in links if link.startswith(DEVICE)}
    if not devices:
        return None
    place = _place(tree, pid)
    return Holder(
        pid=int(pid),
        comm=tree.word(f"/proc/{pid}/comm") or "",
        devices=tuple(sorted(devices)),
        pod_uid=place.pod_uid,
        container_id=place.container_id,
    )


def _place(tree: Tree, pid: str) -> ContainerRef:
    """As its cgroup names it: `…/kubepods…/pod<uid>/<container>`, with dashes or, by systemd, with
    underscores in the uid.
    """
    text = tree.text(f"/proc/{pid}/cgroup") or ""
    pod, container = _POD.search(text), _CONTAINER.search(text)
    if pod is None:
        return ContainerRef("", "")
    return ContainerRef(pod[1].replace("_", "-"), container[1] if container else "")
