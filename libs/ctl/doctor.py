"""Look at everything that Sluice needs; one thing that is missing hides no other."""

import asyncio
import time
from functools import partial
from typing import Final

from libs.contracts.nats_names import CA_CONFIG_MAP, PODS
from libs.contracts.queries import QueryVerb, StatusAnswer, StatusQuery
from libs.ctl import checks
from libs.ctl.checks import Check, CheckedNode, Deployment, Right, Upgrade
from libs.ctl.cluster import DEVICES, Cluster, open_cluster
from libs.ctl.collect.driver_trouble import driver_troubles
from libs.ctl.driver_trouble import starts_driver
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.installation import PEOPLE
from libs.ctl.options import Access
from libs.ctl.policy_checks import Policy, policy_checks
from libs.ctl.pool_checks import Strategy, pool_checks, skipping_pools
from libs.fleet.node import fleet_node
from libs.fleet.pools import ROLLOUTS, Rollout
from libs.fleet.records import record_of
from libs.kube.resources import DAEMON_SETS, Resource, custom_resource
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.kinds.strategy import ROLLOUT_STRATEGY
from libs.policy.render.rendered import MANAGED_BY, MANAGED_BY_LABEL
from libs.policy.validation import PRESENT_LABEL

_OURS: Final = "app.kubernetes.io/name=sluice"
_MANAGED: Final = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
_DEPLOYMENTS: Final = Resource(
    group="apps", plural="deployments", kind="Deployment", view=Deployment
)
_NODES: Final = Resource(plural="nodes", kind="Node", namespaced=False, view=CheckedNode)
_POLICIES: Final = custom_resource(CLUSTER_POLICY, Policy)
_GPU_POLICIES: Final = custom_resource(GPU_CLUSTER_POLICY, Policy)
_DRIVERS: Final = custom_resource(NVIDIA_DRIVER, Policy)
_STRATEGIES: Final = custom_resource(ROLLOUT_STRATEGY, Strategy)
_KINDS: Final = (
    _POLICIES,
    _GPU_POLICIES,
    _DRIVERS,
    _STRATEGIES,
    ROLLOUTS,
    DEVICES,
)
_RIGHTS: Final = (
    Right(verb="list", group="", resource="nodes", used_by="status"),
    Right(verb="list", group="sluice.dev", resource="rollouts", used_by="status"),
    Right(verb="get", group="", resource="nodes", used_by="why"),
    Right(verb="list", group="", resource="events", used_by="why"),
    Right(verb="list", group="gpu.nvidia.com", resource="devices", used_by="gpus"),
    Right(verb="watch", group="", resource="nodes", used_by="watch"),
    Right(verb="watch", group="sluice.dev", resource="rollouts", used_by="watch"),
    Right(verb="watch", group="", resource="events", used_by="watch without NATS"),
    Right(verb="watch", group="gpu.nvidia.com", resource="devices", used_by="web"),
    Right(verb="list", group="nvidia.com", resource="clusterpolicies", used_by="upgrade start"),
    Right(verb="patch", group="nvidia.com", resource="clusterpolicies", used_by="upgrade start"),
    Right(verb="list", group="nvidia.com", resource="nvidiadrivers", used_by="upgrade start"),
    Right(verb="patch", group="nvidia.com", resource="nvidiadrivers", used_by="upgrade start"),
    Right(verb="patch", group="sluice.dev", resource="rollouts", used_by="upgrade pause"),
    Right(verb="patch", group="", resource="nodes", used_by="upgrade retry"),
)
_TOKEN: Final = Right(
    verb="create",
    group="",
    resource="serviceaccounts",
    subresource="token",
    name=PEOPLE,
    used_by="plan",
)
_BY_PODS: Final = (
    *(
        Right(verb=verb, group="", resource="pods", subresource=part, name=PODS[0], used_by="plan")
        for part, verbs in (("", ("get",)), ("portforward", ("get", "create")))
        for verb in verbs
    ),
    Right(verb="get", group="", resource="configmaps", name=CA_CONFIG_MAP, used_by="plan"),
)
"""What the way to NATS needs where no address is given. A port-forward is a GET which makes
something: later versions of Kubernetes ask for both rights."""


async def examine(access: Access) -> list[Check]:
    """Return what was found, in the order in which people would repair it."""
    asked, is_observed = asyncio.create_task(_scheduler(access)), False
    try:
        async with open_cluster(access) as cluster:
            of_cluster, is_observed = await _cluster(cluster, access)
    except Failure as failure:
        of_cluster = [
            checks.fault(
                "Kubernetes", _of_kubernetes(failure), "name a kubeconfig with --kubeconfig"
            )
        ]
    finally:
        await asyncio.wait({asked})
    # Where Sluice is not installed there is no NATS of it, unless somebody names one.
    has_bus = bool(access.nats) or not is_observed
    return [*of_cluster, *(asked.result() if has_bus else ())]


async def _cluster(cluster: Cluster, access: Access) -> tuple[list[Check], bool]:
    """Return what was found, and whether that is a GPU Operator's fleet without Sluice."""
    try:
        version = await cluster.server_version()
    except Failure as failure:
        remedy = "is this the right kubeconfig?"
        return [checks.fault("Kubernetes", _of_kubernetes(failure), remedy)], False
    if observed := await _observed(cluster):
        return [checks.server_check(cluster.address, version), *observed], True
    namespace = await cluster.namespace()
    rollouts, unread = await _rollouts(cluster)
    upgrade = checks.upgrade_of((each.spec, each.status) for each in rollouts)
    looks = {
        "definitions": partial(_definitions, cluster),
        "services": partial(_services, cluster, namespace),
        "agents and drivers": partial(_operands, cluster, namespace, upgrade),
        "policy": partial(_policies, cluster, upgrade),
        "GPU Operator": partial(_foreign_operator, cluster),
        "pools and nodes with GPUs": partial(_pools_and_nodes, cluster, rollouts),
        "your rights": partial(_rights, cluster, namespace, access),
    }
    found = [checks.server_check(cluster.address, version), *unread]
    for about, look in looks.items():
        try:
            found += await look()
        except Failure as failure:
            found.append(checks.not_answered(about, failure, server=version))
    return found, False


async def _observed(cluster: Cluster) -> list[Check]:
    """Return what there is to say of a GPU Operator's fleet, where Sluice is not installed."""
    from libs.ctl.observe.answers import ObservedStatus
    from libs.ctl.observe.checks import operator_checks
    from libs.ctl.observe.gather import observe_status

    try:
        status = await observe_status(cluster, "")
        nodes = await _nodes(cluster) if status is not None else ()
    except Failure as failure:
        return [checks.not_answered("GPU Operator", failure)]
    if not isinstance(status, ObservedStatus):
        return []
    return [*operator_checks(status, now=time.time()), *checks.nodes_checks(nodes)]


async def _foreign_operator(cluster: Cluster) -> list[Check]:
    from libs.ctl.observe.checks import foreign_operator_check
    from libs.ctl.observe.observer import find_operator

    return [foreign_operator_check(await find_operator(cluster))]


async def _definitions(cluster: Cluster) -> list[Check]:
    return [checks.definitions_check({kind.kind: await cluster.serves(kind) for kind in _KINDS})]


async def _services(cluster: Cluster, namespace: str) -> list[Check]:
    found = await cluster.list(_DEPLOYMENTS, labels=_OURS, namespace=namespace)
    return checks.services_checks(found, namespace)


async def _operands(cluster: Cluster, namespace: str, upgrade: Upgrade) -> list[Check]:
    found = await cluster.list(DAEMON_SETS, labels=_MANAGED, namespace=namespace)
    return [checks.operands_check(found, namespace, upgrade)]


async def _policies(cluster: Cluster, upgrade: Upgrade) -> list[Check]:
    """Judge all policies; where the cluster does not know them, another check tells it."""
    if not await cluster.serves(_POLICIES):
        return []
    found = {
        f"{kind.kind} {each.metadata.name}": each
        for kind in (_POLICIES, _GPU_POLICIES, _DRIVERS)
        if await cluster.serves(kind)
        for each in await cluster.list(kind)
    }
    return policy_checks(found, upgrade)


async def _rollouts(cluster: Cluster) -> tuple[tuple[Rollout, ...], list[Check]]:
    """Return the rollouts, or why nothing is said of pools; empty if there are no definitions."""
    try:
        return await cluster.rollouts(), []
    except Failure as failure:
        if failure.code is ExitCode.NOT_FOUND:
            return (), []
        return (), [checks.not_answered("pools", failure)]


async def _pools_and_nodes(cluster: Cluster, rollouts: tuple[Rollout, ...]) -> list[Check]:
    """Judge pools and nodes with GPUs from one list of both, so that they agree."""
    nodes = await _nodes(cluster)
    starting = {
        each.metadata.name: record_of(each.metadata)
        for each in nodes
        if starts_driver(fleet_node(each.metadata))
    }
    troubles = await driver_troubles(cluster, starting)
    skipping = await _skipping_pools(cluster)
    judged = pool_checks(rollouts, nodes, now=time.time(), troubles=troubles, skipping=skipping)
    return [*judged, *checks.nodes_checks(nodes)]


async def _skipping_pools(cluster: Cluster) -> frozenset[str] | None:
    """Return the pools that skip cordoned nodes; None where the user may not read strategies."""
    try:
        return skipping_pools(await cluster.list(_STRATEGIES))
    except Failure as failure:
        if failure.code not in (ExitCode.NOT_ALLOWED, ExitCode.NOT_FOUND):
            raise
        return None


async def _nodes(cluster: Cluster) -> tuple[CheckedNode, ...]:
    return await cluster.list(_NODES, labels=f"{PRESENT_LABEL}=true")


async def _rights(cluster: Cluster, namespace: str, access: Access) -> list[Check]:
    needed = (
        *_RIGHTS,
        *(() if access.has_credentials else (_TOKEN,)),
        *(() if access.nats else _BY_PODS),
    )
    allowed = await asyncio.gather(*(cluster.may(right, namespace) for right in needed))
    denied = [right for right, is_allowed in zip(needed, allowed, strict=True) if not is_allowed]
    return [checks.rights_check(denied)]


async def _scheduler(access: Access) -> list[Check]:
    """Judge NATS and the scheduler."""
    from libs.ctl.bus import open_scheduler

    try:
        async with open_scheduler(access) as scheduler:
            connected = checks.ok("NATS", f"signed in at {scheduler.reached}")
            try:
                answer = await scheduler.ask(StatusQuery(), QueryVerb.STATUS, StatusAnswer)
            except Failure as failure:
                return [connected, checks.fault("scheduler", str(failure), "")]
    except Failure as failure:
        return [checks.bus_fault(failure)]
    return [connected, *checks.scheduler_checks(answer, now=time.time())]


def _of_kubernetes(failure: Failure) -> str:
    """Return the failure without the name that the line begins with."""
    return str(failure).removeprefix("Kubernetes: ")
