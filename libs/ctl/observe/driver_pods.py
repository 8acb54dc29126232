"""The driver pod of each node, and whether it is what its DaemonSet wants. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from libs.contracts.paths import DRIVER_CONTAINER
from libs.ctl.observe.objects import DaemonSet, Pod, PodSpec
from libs.kube import views

_DIGEST: Final = "DRIVER_CONFIG_DIGEST"
_DIGEST_CONTAINERS: Final = (
    "k8s-driver-manager",
    DRIVER_CONTAINER,
    "openshift-driver-toolkit-ctr",
)
_REVISION_LABEL: Final = "controller-revision-hash"


class DriverObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Driver pods, and what made them."""

    driver_pods: Sequence[Pod] = ()
    daemon_sets: Sequence[DaemonSet] = ()
    revisions: Sequence[views.ControllerRevision] = ()


class DriverPod(msgspec.Struct, frozen=True, kw_only=True):
    """The driver pod of a node."""

    name: str
    synced: bool
    """Of the newest revision of its DaemonSet."""
    orphan: bool
    same_install: bool
    """The operator replaces it without evicting anything."""
    ready: bool
    restarts: int
    reason: str

    @property
    def in_sync(self) -> bool:
        return self.synced and not self.orphan and self.ready


def driver_pods_of(found: DriverObjects) -> dict[str, DriverPod]:
    """Return the driver pod of each node.

    A pod whose owner is none of the driver's DaemonSets is not looked at; one
    without any owner is an orphan.
    """
    owners = {each.metadata.uid: each for each in found.daemon_sets}
    newest = _newest_revisions(found)
    pods: dict[str, DriverPod] = {}
    for pod in found.driver_pods:
        node = pod.spec.node_name
        references = pod.metadata.owner_references
        owner = owners.get(references[0].uid) if references else None
        if not node or (references and owner is None):
            continue
        pods[node] = _driver_pod(pod, owner, newest)
    return pods


def _driver_pod(pod: Pod, owner: DaemonSet | None, newest: Mapping[str, str]) -> DriverPod:
    """Return what the operator's rules look at in a driver pod."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    reasons = (each.state.waiting.reason for each in statuses if each.state.waiting is not None)
    digest = config_digest(pod.spec)
    revision = pod.metadata.labels.get(_REVISION_LABEL)
    return DriverPod(
        name=pod.metadata.key,
        synced=owner is not None and newest.get(owner.metadata.uid) == revision,
        orphan=owner is None,
        same_install=bool(
            owner is not None and digest and digest == config_digest(owner.spec.template.spec)
        ),
        ready=pod.is_ready,
        restarts=max((each.restart_count for each in statuses if not each.ready), default=0),
        reason=next(filter(None, reasons), "" if pod.is_ready else pod.status.phase),
    )


def _newest_revisions(found: DriverObjects) -> dict[str, str]:
    """Return the hash of the newest revision by the uid of its DaemonSet."""
    newest: dict[str, tuple[int, str]] = {}
    for each in found.revisions:
        for owner in each.metadata.owner_references[:1]:
            given = (each.revision, each.metadata.name.removeprefix(f"{owner.name}-"))
            newest[owner.uid] = max(given, newest.get(owner.uid, (0, "")))
    return {uid: name for uid, (_, name) in newest.items()}


def config_digest(spec: PodSpec) -> str:
    """Return the digest of what a driver is installed with; empty where there is none."""
    by_name = {each.name: each for each in (*spec.containers, *spec.init_containers)}
    values = (
        variable.value
        for name in _DIGEST_CONTAINERS
        if name in by_name
        for variable in by_name[name].env
        if variable.name == _DIGEST
    )
    return next(filter(None, values), "")


def incomplete_sets(found: DriverObjects) -> tuple[str, ...]:
    """Return which DaemonSets of drivers have fewer or more pods than they should.

    As long as there is one, the operator moves no node of the cluster.
    """
    counts: dict[str, int] = {}
    for pod in found.driver_pods:
        for owner in pod.metadata.owner_references[:1]:
            counts[owner.uid] = counts.get(owner.uid, 0) + 1
    return tuple(
        f"{each.metadata.name} has {counts.get(each.metadata.uid, 0)} pods of"
        f" {each.status.desired_number_scheduled}"
        for each in found.daemon_sets
        if counts.get(each.metadata.uid, 0) != each.status.desired_number_scheduled
    )
