"""The pods that bring a driver's images to a node before it is drained. Pure.

Each runs `true` from the images of the wanted driver, and from that of the last-good one, so that a
way back exists. It ends at once and stays: a kubelet removes no image that a pod's container names,
unless it runs out of disk space. It is deleted when the driver itself runs on the node and its
target is proven.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from libs.contracts.node import DRIVER_LABEL, STATE_LABEL, UpgradeState
from libs.kube.views import Pod, parse_time
from libs.policy.installation import DRIVER_ACCOUNT
from libs.policy.render.rendered import (
    COMMON_LABELS,
    IMAGE_LABEL,
    IMAGE_PULLER,
    POOL_ANNOTATION,
    TARGET_ANNOTATION,
    WAY_BACK,
)
from services.driver.cluster.resources import DaemonSet, Node

MAX_UNFINISHED: Final = 32
"""How many pods pull at a time, so that a registry is not asked by the whole fleet at once."""
TURN: Final = 600.0
"""Seconds after which a pod that cannot pull gives its place to one that has not tried."""
RETRY_FAILED: Final = 60.0
"""Seconds after which a pod that the kubelet refused or evicted is made again."""

KEEPS_ANNOTATION: Final = "sluice.dev/keeps"
"""The driver label of the last-good driver whose images the pod keeps."""

_UNPRIVILEGED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
_NAME_LENGTH: Final = 20
"""Digits of a digest in a pod's name: equal pods have one name, and are not made twice."""


class ImageRequest(msgspec.Struct, frozen=True):
    """The scheduler's request to bring a driver's images to a node."""

    node_uid: str
    label: str


class PullPlan(msgspec.Struct, frozen=True, kw_only=True):
    create: tuple[Mapping[str, Any], ...] = ()
    delete: tuple[Pod, ...] = ()


def plan_pods(
    requests: Mapping[str, ImageRequest],
    *,
    node_of: Callable[[str], Node | None],
    drivers: Mapping[str, DaemonSet],
    last_good: Mapping[str, str],
    pods: Collection[Pod],
    tried: Mapping[str, float],
    now: float,
) -> PullPlan:
    """Return which pods to create and to delete.

    `requests` are by node name, `node_of` returns a node by its name. `drivers` are by label,
    `last_good` has the targets by pool. `tried` says when the pod of a name was last created.
    """
    wanted: dict[str, Mapping[str, Any]] = {}
    for name, request in requests.items():
        node, driver = node_of(name), drivers.get(request.label)
        if node is None or driver is None or request.node_uid != node.metadata.uid:
            continue
        if _is_needed(node, driver, last_good):
            own = (pod for pod in pods if pod.spec.node_name == name)
            kept = _kept_driver(node, driver, drivers, last_good, own)
            pod = _pod(node, driver, kept)
            wanted[pod["metadata"]["name"]] = pod
    live = {pod.metadata.name: pod for pod in pods}
    missing = sorted(wanted.keys() - live.keys(), key=lambda name: (tried.get(name, 0.0), name))
    unfinished = [pod for name, pod in live.items() if name in wanted and not is_over(pod)]
    return PullPlan(
        create=tuple(wanted[name] for name in missing[: max(0, MAX_UNFINISHED - len(unfinished))]),
        delete=tuple(_to_delete(live, wanted, unfinished, len(missing), now)),
    )


def is_over(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def _to_delete(
    live: Mapping[str, Pod],
    wanted: Collection[str],
    unfinished: Sequence[Pod],
    missing: int,
    now: float,
) -> Iterator[Pod]:
    """Yield pods that are not wanted, that a kubelet gave up, or whose turn is over."""
    turns_end = missing and len(unfinished) >= MAX_UNFINISHED
    for name, pod in live.items():
        if pod.metadata.deletion_timestamp:
            continue
        created = pod.metadata.creation_timestamp
        age = now - parse_time(created) if created else 0.0
        gave_up = pod.status.phase == "Failed" and not _has_run(pod) and age >= RETRY_FAILED
        turn_over = turns_end and not is_over(pod) and age >= TURN
        if name not in wanted or gave_up or turn_over:
            yield pod


def _has_run(pod: Pod) -> bool:
    statuses = pod.status.container_statuses
    return bool(statuses) and all(each.image_id for each in statuses)


def _is_needed(node: Node, driver: DaemonSet, last_good: Mapping[str, str]) -> bool:
    """Whether the node does not run the driver yet, or its target is not proven."""
    labels, annotations = node.metadata.labels, driver.metadata.annotations
    runs = labels.get(DRIVER_LABEL) == driver.metadata.labels[DRIVER_LABEL]
    if not runs or labels.get(STATE_LABEL) != UpgradeState.UPGRADE_DONE:
        return True
    return last_good.get(annotations.get(POOL_ANNOTATION, "")) != annotations.get(TARGET_ANNOTATION)


def _kept_driver(
    node: Node,
    driver: DaemonSet,
    drivers: Mapping[str, DaemonSet],
    last_good: Mapping[str, str],
    pods: Iterable[Pod],
) -> DaemonSet | None:
    """Return the driver to go back to: the last-good one, otherwise the one that the node has."""
    labels = [
        *(pod.metadata.annotations.get(KEEPS_ANNOTATION, "") for pod in pods),
        node.metadata.labels.get(DRIVER_LABEL, ""),
    ]
    found = [
        drivers[label]
        for label in labels
        if label in drivers and label != driver.metadata.labels[DRIVER_LABEL]
    ]
    target = last_good.get(driver.metadata.annotations.get(POOL_ANNOTATION, ""), "")
    good = [each for each in found if each.metadata.annotations.get(TARGET_ANNOTATION) == target]
    return next(iter((*good, *found)), None)


def _pod(node: Node, driver: DaemonSet, kept: DaemonSet | None) -> Mapping[str, Any]:
    """Return the pod; its name depends on all of its content."""
    label = driver.metadata.labels[DRIVER_LABEL]
    containers = list(_containers(driver, "image", policy=None))
    containers += _containers(kept, WAY_BACK, policy="IfNotPresent") if kept else ()
    secrets = [
        secret
        for each in (driver, kept)
        if each is not None
        for secret in _pod_spec(each).get("imagePullSecrets", ())
    ]
    spec: dict[str, Any] = {
        "nodeName": node.metadata.name,
        "restartPolicy": "Never",
        "serviceAccountName": DRIVER_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "containers": containers,
    }
    if secrets:
        spec["imagePullSecrets"] = [
            each for place, each in enumerate(secrets) if each not in secrets[:place]
        ]
    material = msgspec.json.encode([node.metadata.uid, label, spec], order="sorted")
    digest = hashlib.sha256(material).hexdigest()[:_NAME_LENGTH]
    kept_label = kept.metadata.labels[DRIVER_LABEL] if kept is not None else ""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{IMAGE_PULLER}-{digest}",
            "labels": {**COMMON_LABELS, "app": IMAGE_PULLER, IMAGE_LABEL: label},
            "annotations": {KEEPS_ANNOTATION: kept_label},
        },
        "spec": spec,
    }


def _pod_spec(driver: DaemonSet) -> Mapping[str, Any]:
    return driver.spec["template"]["spec"]


def _containers(driver: DaemonSet, name: str, *, policy: str | None) -> Iterator[dict[str, Any]]:
    """Yield a container for each image of a driver's pod, but that of the gate: it is ours."""
    spec, seen = _pod_spec(driver), set[str]()
    for container in spec["containers"]:
        image = container["image"]
        if image in seen:
            continue
        seen.add(image)
        yield {
            "name": f"{name}-{len(seen)}",
            "image": image,
            "imagePullPolicy": policy or container.get("imagePullPolicy", "IfNotPresent"),
            "command": ["true"],
            "securityContext": _UNPRIVILEGED,
        }
