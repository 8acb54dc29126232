"""Why the claims of a node wait: its driver changes, or its plugin for claims is away. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from libs.contracts.node import UpgradeState
from libs.kube import views
from libs.kube.events import InvolvedObject
from libs.kube.views.claims import RESOURCE_CLAIMS, ResourceClaim
from libs.policy.render.claims import DRIVER

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


def node_of(claim: ResourceClaim) -> str:
    """Return the node of the claim's GPUs, which names the pool; empty if it has none."""
    return next((each.pool for each in claim.devices_of((DRIVER,))), "")


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Why a claim waits."""

    claim: ResourceClaim
    why: str

    def about(self) -> Iterator[InvolvedObject]:
        """Yield the claim and its pods."""
        metadata = self.claim.metadata
        yield InvolvedObject(
            api_version=RESOURCE_CLAIMS.api_version,
            kind=RESOURCE_CLAIMS.kind,
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
        node = node_of(claim)
        if node and ends:
            yield Notice(claim=claim, why=SWITCHED_OFF)
        elif node and (why := _why(node, ready=node in ready, states=states)):
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
