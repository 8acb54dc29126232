"""Nodes, pools and limits of a GPU Operator's fleet, of objects as Kubernetes lists them. Pure.

A pool is what has one upgrade policy: the ClusterPolicy, or each NVIDIADriver. Only nodes with a
driver pod belong to one, as in the operator's own count.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from libs.contracts.node import (
    INITIALLY_CORDONED_ANNOTATION,
    REQUESTED_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
    UpgradeState,
)
from libs.ctl.observe.driver_pods import (
    DriverObjects,
    DriverPod,
    driver_pods_of,
    incomplete_sets,
)
from libs.ctl.observe.objects import (
    DEPLOY_PREFIX,
    DONE,
    JOBS_SINCE_ANNOTATION,
    OWNER_LABEL,
    PAUSED,
    VALIDATION_SINCE_ANNOTATION,
    ClusterPolicy,
    NvidiaDriver,
    Pod,
    PodDeletion,
    UpgradePolicy,
)
from libs.fleet.node import VERSION_LABEL, FleetNode
from libs.kube import views

_UNMANAGED: Final = frozenset(
    {UpgradeState.NODE_MAINTENANCE_REQUIRED.value, UpgradeState.POST_MAINTENANCE_REQUIRED.value}
)
KNOWN_STATES: Final = frozenset(state.value for state in UpgradeState)
REQUIRED: Final = UpgradeState.UPGRADE_REQUIRED.value
FAILED: Final = UpgradeState.UPGRADE_FAILED.value


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU Operator, by its leader lease and its policy."""

    namespace: str = ""
    is_live: bool = False
    holder: str = ""
    renewed: float | None = None


class OperatorNode(FleetNode, frozen=True, kw_only=True):
    """A node, with what the operator's rules look at besides."""

    ready: bool = True
    requested: bool = False
    safe_load: bool = False
    initially_cordoned: bool = False
    jobs_since: float | None = None
    validating_since: float | None = None
    paused: tuple[str, ...] = ()
    """Operands that its labels pause for an upgrade."""
    pod: DriverPod | None = None
    validators: tuple[bool, ...] = ()
    """The readiness of each validator pod."""

    @property
    def is_available(self) -> bool:
        return self.ready and not self.cordoned

    @property
    def needs_upgrade(self) -> bool:
        """Whether the operator marks it at its next pass, or has marked it."""
        stale = self.pod is not None and not self.pod.synced and not self.pod.orphan
        return self.state == REQUIRED or (
            self.state in DONE and (stale or self.safe_load or self.requested)
        )


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What an upgrade policy allows, with the operator's defaults."""

    auto_upgrade: bool
    max_parallel: int
    max_unavailable: int | str | None
    eviction: PodDeletion | None
    """None: the policy has no section `podDeletion`."""
    drains: bool
    job_selector: str
    job_timeout: int


class OperatorPool(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that one upgrade policy moves, and its limits."""

    name: str
    version: str
    limits: Limits
    nodes: tuple[OperatorNode, ...]
    incomplete: tuple[str, ...] = ()
    """Driver DaemonSets that have fewer or more pods than they should, of the whole cluster."""

    @property
    def managed(self) -> tuple[OperatorNode, ...]:
        return tuple(
            node
            for node in self.nodes
            if node.state in KNOWN_STATES and node.state not in _UNMANAGED
        )


class OperatorFleet(msgspec.Struct, frozen=True, kw_only=True):
    """All that the operator looks after, and the nodes with GPUs that it does not see."""

    operator: Operator
    pools: tuple[OperatorPool, ...]
    outside: tuple[OperatorNode, ...] = ()
    """Nodes with GPUs that have no driver pod, so that the operator does not count them."""

    @property
    def nodes(self) -> tuple[OperatorNode, ...]:
        inside = (node for pool in self.pools for node in pool.nodes)
        return tuple(sorted((*inside, *self.outside), key=lambda node: node.name))


class Found(DriverObjects, frozen=True, kw_only=True):
    """The objects that were read."""

    nodes: Sequence[views.Node]
    validator_pods: Sequence[Pod] = ()
    policies: Sequence[ClusterPolicy] = ()
    drivers: Sequence[NvidiaDriver] = ()


def fleet_of(found: Found, operator: Operator) -> OperatorFleet:
    """Return the fleet as the operator sees it."""
    pods = driver_pods_of(found)
    validators: dict[str, list[bool]] = {}
    for each in found.validator_pods:
        validators.setdefault(each.spec.node_name, []).append(each.is_ready)
    policies = _policies(found)
    single = next(iter(policies)) if len(policies) == 1 and not _uses_drivers(found) else ""
    nodes = [
        _node(node, single, pods.get(node.metadata.name), validators.get(node.metadata.name, ()))
        for node in sorted(found.nodes, key=lambda each: each.metadata.name)
    ]
    incomplete = incomplete_sets(found)
    pools = tuple(
        OperatorPool(
            name=name,
            version=version,
            limits=limits,
            nodes=tuple(node for node in nodes if node.pod is not None and node.pool == name),
            incomplete=incomplete,
        )
        for name, (version, limits) in policies.items()
    )
    inside = {node.name for pool in pools for node in pool.nodes}
    return OperatorFleet(
        operator=operator,
        pools=pools,
        outside=tuple(node for node in nodes if node.name not in inside),
    )


def _uses_drivers(found: Found) -> bool:
    return not found.policies or _oldest(found.policies).spec.driver.use_nvidia_driver_crd


def _oldest(policies: Sequence[ClusterPolicy]) -> ClusterPolicy:
    """Return the ClusterPolicy that counts: the oldest, then the first by name."""
    return min(
        policies, key=lambda each: (each.metadata.creation_timestamp or "~", each.metadata.name)
    )


def _policies(found: Found) -> Mapping[str, tuple[str, Limits]]:
    if not _uses_drivers(found):
        policy = _oldest(found.policies)
        name, section = policy.metadata.name, policy.spec.driver
        return {name: (section.version, _limits(section.upgrade_policy, default=False))}
    return {
        each.metadata.name: (each.spec.version, _limits(each.spec.upgrade_policy, default=True))
        for each in sorted(found.drivers, key=lambda each: each.metadata.name)
    }


def _limits(policy: UpgradePolicy | None, *, default: bool) -> Limits:
    """Return the limits; an NVIDIADriver without a policy upgrades with all defaults."""
    given = policy if policy is not None else UpgradePolicy(auto_upgrade=default)
    wait = given.wait_for_completion
    return Limits(
        auto_upgrade=given.auto_upgrade,
        max_parallel=given.max_parallel_upgrades,
        max_unavailable=given.max_unavailable,
        eviction=given.pod_deletion or (PodDeletion() if default else None),
        drains=given.drain is not None and given.drain.enable,
        job_selector="" if wait is None else wait.pod_selector,
        job_timeout=0 if wait is None else wait.timeout_seconds,
    )


def _node(
    node: views.Node, single: str, pod: DriverPod | None, validators: Sequence[bool]
) -> OperatorNode:
    """Return a node by its labels and annotations; one without the condition Ready counts as so."""
    labels, annotations = node.metadata.labels, node.metadata.annotations
    ready = {each.type: each.status for each in node.status.conditions}.get("Ready", "True")
    return OperatorNode(
        name=node.metadata.name,
        state=labels.get(STATE_LABEL, ""),
        pool=single or labels.get(OWNER_LABEL, ""),
        driver=labels.get(VERSION_LABEL, ""),
        cordoned=node.spec.unschedulable,
        in_flight=labels.get(STATE_LABEL, "") not in (*DONE, REQUIRED, FAILED),
        ready=ready == "True",
        skipped=labels.get(SKIP_LABEL) == "true",
        requested=annotations.get(REQUESTED_ANNOTATION) == "true",
        safe_load=bool(annotations.get(SAFE_LOAD_ANNOTATION)),
        initially_cordoned=INITIALLY_CORDONED_ANNOTATION in annotations,
        jobs_since=_seconds(annotations.get(JOBS_SINCE_ANNOTATION, "")),
        validating_since=_seconds(annotations.get(VALIDATION_SINCE_ANNOTATION, "")),
        paused=tuple(
            key.removeprefix(DEPLOY_PREFIX)
            for key, value in sorted(labels.items())
            if key.startswith(DEPLOY_PREFIX) and value == PAUSED
        ),
        pod=pod,
        validators=tuple(validators),
    )


def _seconds(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
