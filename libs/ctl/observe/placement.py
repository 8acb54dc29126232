"""Whether pods that an upgrade evicts find a GPU on another node now. Pure.

Looked at are GPUs, node selectors, taints and cordons; not affinity, CPU and memory.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from libs.contracts.gpus import GPU_RESOURCES
from libs.ctl.observe.objects import Pod
from libs.kube import views


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A node that may take pods."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[views.Taint, ...]
    free: Mapping[str, int]
    """Free GPUs and MIG devices by the name of the resource."""


def hosts_of(nodes: Iterable[views.Node], pods: Iterable[Pod]) -> tuple[Host, ...]:
    """Return the nodes that are Ready and not cordoned, with what their pods leave free."""
    used: dict[str, Counter[str]] = {}
    for pod in pods:
        if pod.is_active:
            used.setdefault(pod.spec.node_name, Counter()).update(gpus_of(pod))
    return tuple(
        Host(
            name=node.metadata.name,
            labels=node.metadata.labels,
            taints=tuple(each for each in node.spec.taints if each.effect != "PreferNoSchedule"),
            free={
                name: int(amount) - used.get(node.metadata.name, Counter())[name]
                for name, amount in node.status.allocatable.items()
                if name.startswith(GPU_RESOURCES) and amount.isdecimal()
            },
        )
        for node in nodes
        if not node.spec.unschedulable and _is_ready(node)
    )


def _is_ready(node: views.Node) -> bool:
    return all(each.status == "True" for each in node.status.conditions if each.type == "Ready")


def gpus_of(pod: Pod) -> dict[str, int]:
    """Return the GPUs that a pod asks for, by the name of the resource."""
    asked = Counter[str]()
    for container in pod.spec.containers:
        resources = container.resources
        for name, amount in {**resources.requests, **resources.limits}.items():
            if name.startswith(GPU_RESOURCES) and amount.isdecimal():
                asked[name] += int(amount)
    return dict(asked)


def without_place(node: str, evicted: Iterable[Pod], hosts: Sequence[Host]) -> tuple[str, ...]:
    """Return the pods of a node that fit nowhere else if this node alone is away.

    The largest pods choose first, each the fullest node that has room.
    """
    free = {host.name: dict(host.free) for host in hosts if host.name != node}
    by_name = {host.name: host for host in hosts}
    lost: list[str] = []
    wanted = ((gpus_of(pod), pod) for pod in evicted)
    for asked, pod in sorted(
        wanted, key=lambda each: (-sum(each[0].values()), each[1].metadata.key)
    ):
        rooms = (
            (sum(left.values()), name)
            for name, left in free.items()
            if _accepts(by_name[name], pod) and _has_room(left, asked)
        )
        _, chosen = min(rooms, default=(0, ""))
        if not chosen:
            lost.append(pod.metadata.key)
            continue
        for name, amount in asked.items():
            free[chosen][name] -= amount
    return tuple(sorted(lost))


def _has_room(left: Mapping[str, int], asked: Mapping[str, int]) -> bool:
    return all(left.get(name, 0) >= amount for name, amount in asked.items())


def _accepts(host: Host, pod: Pod) -> bool:
    spec = pod.spec
    return spec.node_selector.items() <= host.labels.items() and all(
        any(each.tolerates(taint) for each in spec.tolerations) for taint in host.taints
    )
