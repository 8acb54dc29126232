"""Why the claims of a node wait: its driver changes, or its plugin for claims is away. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from libs.contracts.node import UpgradeState
from libs.kube import views
from libs.kube.events import InvolvedObject
from libs.kube.resources import Resource
from libs.policy.render.claims import DEVICE_CLASS_GROUP, DRIVER

_AT_REST: Final = frozenset(
    (UpgradeState.UNKNOWN, UpgradeState.UPGRADE_REQUIRED, UpgradeState.UPGRADE_DONE)
)
_STARTED: Final = "pods that have started keep their GPUs, others wait"
SWITCHED_OFF: Final = (
    "spec.dra.enabled is false: pods that have started keep their GPUs until they end, others never"
    " start: delete them"
)
MAX_PODS: Final = 256
"""Of a claim, which is also the API server's limit."""


class DeviceResult(views.View, frozen=True, kw_only=True):
    driver: str = ""
    pool: str = ""


class Devices(views.View, frozen=True, kw_only=True):
    results: tuple[DeviceResult, ...] = ()


class Allocation(views.View, frozen=True, kw_only=True):
    devices: Devices = Devices()


class Consumer(views.View, frozen=True, kw_only=True):
    """A pod that may use the claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimStatus(views.View, frozen=True, kw_only=True):
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class ResourceClaim(views.Object, frozen=True, kw_only=True):
    status: ClaimStatus = ClaimStatus()

    @property
    def node(self) -> str:
        """The node of the claim's GPUs; empty if it has none."""
        allocation = self.status.allocation
        results = () if allocation is None else allocation.devices.results
        return next((each.pool for each in results if each.driver == DRIVER), "")


CLAIMS: Final = Resource(
    group=DEVICE_CLASS_GROUP,
    plural="resourceclaims",
    kind="ResourceClaim",
    optional=True,
    view=ResourceClaim,
)
"""Served since Kubernetes 1.34."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Why a claim waits."""

    claim: ResourceClaim
    why: str

    def about(self) -> Iterator[InvolvedObject]:
        """Yield the claim and its pods."""
        metadata = self.claim.metadata
        yield InvolvedObject(
            api_version=CLAIMS.api_version,
            kind=CLAIMS.kind,
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
        )
        for each in self.claim.status.reserved_for[:MAX_PODS]:
            if each.resource == "pods":
                yield InvolvedObject(
                    kind="Pod", name=each.name, namespace=metadata.namespace, uid=each.uid
                )


def notices(
    claims: Iterable[ResourceClaim],
    *,
    plugins: Iterable[views.Pod],
    states: Mapping[str, str],
    ends: bool = False,
) -> Iterator[Notice]:
    """Yield the claims of this driver that cannot be prepared now.

    `plugins` are the pods of the plugin for claims; `states` is the state of each node's driver.
    `ends`: the policy gives GPUs by claims no more.
    """
    ready = {pod.spec.node_name for pod in plugins if _is_ready(pod)}
    for claim in claims:
        if claim.node and ends:
            yield Notice(claim=claim, why=SWITCHED_OFF)
        elif claim.node and (why := _why(claim.node, ready=claim.node in ready, states=states)):
            yield Notice(claim=claim, why=f"{why}: {_STARTED}")


def _why(node: str, *, ready: bool, states: Mapping[str, str]) -> str:
    state = states.get(node, "")
    if state not in _AT_REST:
        return f"the driver of node {node} is being changed ({state[:64]})"
    return "" if ready else f"the plugin for claims of node {node} is not ready"


def _is_ready(pod: views.Pod) -> bool:
    if pod.metadata.deletion_timestamp:
        return False
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
