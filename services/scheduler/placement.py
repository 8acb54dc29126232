"""Whether pods that an upgrade displaces fit on other nodes, as these are now. Pure.

Judged are devices of `nvidia.com/` against what is free, readiness, cordons, taints, node selectors
and required node affinity. Not judged are CPU and memory, claims of devices (also those that
Kubernetes makes where a node gives its GPUs by claims alone), spread and pod affinity: a pod that
fits here may still have to wait, one that does not fit here does wait.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from libs.contracts.numbers import parse_count
from libs.kube.views.placing import Toleration
from libs.policy.affinity import NodeAffinity, parse_affinity
from services.scheduler.resources import NVIDIA, Node, Pod

_REPELS: Final = frozenset({"NoSchedule", "NoExecute"})
_ANY_NODE: Final = NodeAffinity()


class Displaced(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod needs of a node."""

    uid: str
    devices: Mapping[str, int]
    selector: Mapping[str, str]
    tolerations: Sequence[Toleration]
    affinity: NodeAffinity


class Placement:
    """The devices of all nodes, and the pods that hold them."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {node.metadata.name: node for node in nodes}
        self._held: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def hold(self, pod: Pod) -> None:
        """Count the devices of a pod that runs or will run on a node."""
        self._held[pod.spec.node_name].update(devices_of(pod))

    def without_place(self, node: str, pods: Iterable[Displaced]) -> dict[str, str]:
        """Return why pods of one node fit on no other one, by uid; those that fit are left out.

        Pods with the most devices choose first, and each takes what it finds from the others.
        """
        others = {
            name: self._free(other)
            for name, other in self._nodes.items()
            if name != node and _is_open(other)
        }
        found: dict[str, str] = {}
        counted = (pod for pod in pods if self._lists(node, pod.devices))
        for pod in sorted(counted, key=lambda each: (-sum(each.devices.values()), each.uid)):
            allowed = [name for name in others if _permits(self._nodes[name], pod)]
            fitting = [name for name in allowed if _has(others[name], pod.devices)]
            if fitting:
                # The fullest node that has room, so that large pods find whole ones.
                chosen = min(fitting, key=lambda name: (sum(others[name].values()), name))
                others[chosen].subtract(pod.devices)
            else:
                found[pod.uid] = _reason(pod, [others[name] for name in allowed])
        return found

    def _lists(self, name: str, devices: Mapping[str, int]) -> bool:
        """Whether the kubelet of a node counts these devices; otherwise its pods have claims."""
        node = self._nodes.get(name)
        return node is None or devices.keys() <= node.status.allocatable.keys()

    def _free(self, node: Node) -> Counter[str]:
        free = Counter[str]()
        for name, amount in node.status.allocatable.items():
            if name.startswith(NVIDIA):
                free[name] = (parse_count(amount) or 0) - self._held[node.metadata.name][name]
        return free


def displaced(pod: Pod) -> Displaced | None:
    """Return what a pod needs; None: nothing that is judged here, or it cannot be read."""
    devices = devices_of(pod)
    required = (pod.spec.affinity or {}).get("nodeAffinity")
    affinity = _ANY_NODE if required is None else parse_affinity(required)
    if not devices or isinstance(affinity, str):
        return None
    return Displaced(
        uid=pod.metadata.uid,
        devices=devices,
        selector=pod.spec.node_selector,
        tolerations=pod.spec.tolerations,
        affinity=affinity,
    )


def devices_of(pod: Pod) -> dict[str, int]:
    """Return the devices that a pod asks for, by resource.

    Containers hold theirs together; an init container holds its own before them.
    """
    together, before = Counter[str](), Counter[str]()
    for container in pod.spec.containers:
        together.update(_devices(container.resources.limits))
    for container in pod.spec.init_containers:
        before |= _devices(container.resources.limits)
    return {name: count for name, count in (together | before).items() if count}


def _devices(amounts: Mapping[str, str]) -> Counter[str]:
    return Counter(
        {
            name: parse_count(amount) or 0
            for name, amount in amounts.items()
            if name.startswith(NVIDIA)
        }
    )


def _is_open(node: Node) -> bool:
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    return ready and not node.spec.unschedulable


def _permits(node: Node, pod: Displaced) -> bool:
    labels = node.metadata.labels
    return (
        pod.selector.items() <= labels.items()
        and pod.affinity.permits(node.metadata.name, labels)
        and all(
            any(each.tolerates(taint) for each in pod.tolerations)
            for taint in node.spec.taints
            if taint.effect in _REPELS
        )
    )


def _has(free: Mapping[str, int], devices: Mapping[str, int]) -> bool:
    return all(free.get(name, 0) >= count for name, count in devices.items())


def _reason(pod: Displaced, allowed: Sequence[Mapping[str, int]]) -> str:
    needs = ", ".join(f"{count} {name}" for name, count in sorted(pod.devices.items()))
    if not allowed:
        return f"{needs}: its selectors and tolerations permit no other node that is open now"
    most = ", ".join(
        f"{max(0, *(free.get(name, 0) for free in allowed))} {name}" for name in sorted(pod.devices)
    )
    return f"{needs}: at most {most} are free on a node that it permits"
