"""Remove agents and drivers from all nodes, and undo what they changed on hosts."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from libs.contracts.gpus import GPU_RESOURCES
from libs.contracts.identities import Writer
from libs.contracts.words import first_few
from libs.kube.client import Kube
from libs.kube.errors import NotFound
from libs.kube.resources import PODS, Resource
from libs.kube.views import DaemonSetStatus, Metadata, Object, Pod
from libs.policy.render.agents import AGENTS
from libs.policy.render.driver import APP as DRIVER
from libs.policy.render.rendered import MANAGED_BY, MANAGED_BY_LABEL
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.driver.cluster.decide import is_driver_daemon_set
from services.driver.cluster.resources import DAEMON_SETS, DaemonSet, is_ours
from services.driver.uninstall.pages import all_nodes, running_pods
from services.driver.uninstall.traces import is_leased, is_undoing, undo_change

DEPLOYMENTS: Final = Resource(group="apps", plural="deployments", kind="Deployment", view=Object)
SCHEDULER: Final = "sluice-scheduler"
WRITERS: Final = ("sluice-discovery-cluster", "sluice-driver-cluster")
"""The Deployments that would write again what is removed, beside the scheduler's."""
AGENT: Final = next(each for each in AGENTS if each.component is Writer.DRIVER)
ON_LINUX: Final = "kubernetes.io/os=linux"
_OPERANDS: Final = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
_SERVICES: Final = "app.kubernetes.io/name=sluice,app.kubernetes.io/component"
POLL: Final = 1.0
"""Seconds between two looks at what is awaited."""
SHOWN: Final = 5
"""How many names an error contains."""

_log = logger()


class RemovalRefused(Exception):
    """Sluice cannot be removed now; the text names the nodes or pods, and what a person can do."""


def some_names(names: list[str]) -> str:
    """Return the first names and the number of others, as a line of Helm's output has room for."""
    return first_few(sorted(names), SHOWN)


class Operands:
    """Agents, drivers and the services that write, in one namespace."""

    def __init__(self, kube: Kube, *, namespace: str, clock: Clock, until: float) -> None:
        """`until` is when, on the monotonic clock, waiting ends with `RemovalRefused`."""
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._until = until
        self.in_use: dict[str, list[str]] = {}
        """Nodes whose driver stays loaded, with the pods that had GPUs when it was to end."""

    async def stop_services(self) -> None:
        """End the services that write; raise `RemovalRefused` while a node is being changed."""
        await self._require_no_operation()
        scheduler = await self._raw(DEPLOYMENTS, SCHEDULER)
        await self._delete(DEPLOYMENTS, SCHEDULER)
        await self._until_gone(f"{_SERVICES}=scheduler")
        try:
            await self._require_no_operation()
        except RemovalRefused:
            if scheduler is not None:
                await self._kube.create(DEPLOYMENTS, scheduler, namespace=self._namespace)
            raise
        for name in WRITERS:
            await self._delete(DEPLOYMENTS, name)
        await self._until_gone(f"{_SERVICES} in (discovery,driver)")

    async def remove(self) -> None:
        """Remove all DaemonSets; that of the driver agent undoes what hosts have, and goes last."""
        page = await self._kube.list_all(DAEMON_SETS, namespace=self._namespace)
        ours = {each.metadata.name: each for each in page.items if is_ours(each)}
        agent = ours.pop(AGENT.name, None)
        drivers = [name for name, each in ours.items() if is_driver_daemon_set(each)]
        agents = ours.keys() - drivers
        for name in agents:
            await self._delete(DAEMON_SETS, name)
        for pod in await self._pods(_OPERANDS):
            if not pod.metadata.owner_references:  # one that the driver service made by itself
                await self._delete(PODS, pod.metadata.name)
        await self._until_gone(f"{_OPERANDS},app notin ({AGENT.app},{DRIVER})")
        await self._note_use()
        # A driver's container can unload only what no agent holds open.
        for name in drivers:
            await self._delete(DAEMON_SETS, name)
        await self._until_gone(f"{_OPERANDS},app!={AGENT.app}")
        _log.info("agents and drivers have ended", agents=sorted(agents), drivers=sorted(drivers))
        if agent is not None:  # else no host was ever changed, or an earlier run has undone all
            await self._undo_hosts(agent)
            await self._delete(DAEMON_SETS, AGENT.name)
        await self._until_gone(f"{_OPERANDS},app={AGENT.app}")

    async def _note_use(self) -> None:
        """Note the pods with GPUs on nodes that have a driver of Sluice's."""
        driven = {pod.spec.node_name for pod in await self._pods(f"{_OPERANDS},app={DRIVER}")}
        if not driven:
            return
        async for pod in running_pods(self._kube):
            if pod.spec.node_name in driven and _requests_gpu(pod):
                pods = self.in_use.setdefault(pod.spec.node_name, [])
                if pod.metadata.key not in pods:
                    pods.append(pod.metadata.key)

    async def _undo_hosts(self, agent: DaemonSet) -> None:
        if not is_undoing(agent.spec):
            await self._kube.merge(
                DAEMON_SETS,
                AGENT.name,
                undo_change(agent.spec),
                resource_version=agent.metadata.resource_version,
                namespace=self._namespace,
            )

        async def are_undone() -> bool:
            daemon_set = await self._kube.get(DAEMON_SETS, AGENT.name, namespace=self._namespace)
            return _is_complete(daemon_set.metadata, daemon_set.status)

        await self._wait(are_undone, self._why_not_undone)
        _log.info("all hosts are as they were before")

    async def _why_not_undone(self) -> str:
        pods = await self._pods(f"app={AGENT.app}")
        done = {pod.spec.node_name for pod in pods if _is_ready(pod)}
        names = [each.metadata.name async for each in all_nodes(self._kube, labels=ON_LINUX)]
        left = [name for name in names if name not in done]
        return (
            f"the hosts of these nodes are not yet as they were before: {some_names(left)}. The"
            f" pods app={AGENT.app} in {self._namespace} log why. A node that never comes back has"
            " to be deleted. Then run the removal again"
        )

    async def _require_no_operation(self) -> None:
        found = [each.metadata.name async for each in all_nodes(self._kube) if is_leased(each)]
        if found:
            raise RemovalRefused(
                f"Sluice is changing these nodes: {some_names(found)}. Wait until `kubectl sluice"
                " status` shows no node in flight, and remove Sluice then; a person who knows that"
                " nothing will finish a node may remove its annotation sluice.dev/lease"
            )

    async def _raw(self, resource: Resource[Any], name: str) -> dict[str, Any] | None:
        """Return an object as it could be created again; None if it is missing."""
        path = resource.path(namespace=self._namespace, name=name)
        try:
            body = await self._kube.request("GET", path)
        except NotFound:
            return None
        found: Mapping[str, Any] = msgspec.json.decode(body)
        metadata = {
            key: found["metadata"][key]
            for key in ("name", "labels", "annotations")
            if key in found["metadata"]
        }
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "spec": found["spec"],
        }

    async def _delete(self, resource: Resource[Any], name: str) -> None:
        """Delete an object, and its pods after it; a missing one is fine."""
        path = resource.path(namespace=self._namespace, name=name)
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
        }
        try:
            await self._kube.request("DELETE", path, body=body)
        except NotFound:
            return

    async def _pods(self, labels: str) -> tuple[Pod, ...]:
        return (await self._kube.list_all(PODS, namespace=self._namespace, labels=labels)).items

    async def _until_gone(self, labels: str) -> None:
        async def are_gone() -> bool:
            return not await self._pods(labels)

        async def why() -> str:
            pods = [
                f"{each.metadata.name} on {each.spec.node_name}"
                for each in await self._pods(labels)
            ]
            return (
                f"these pods in {self._namespace} do not end: {some_names(pods)}. Look at their"
                " nodes; a node that never comes back has to be deleted. Then run the removal again"
            )

        await self._wait(are_gone, why)

    async def _wait(
        self, condition: Callable[[], Awaitable[bool]], why: Callable[[], Awaitable[str]]
    ) -> None:
        while not await condition():
            if self._clock.monotonic() >= self._until:
                raise RemovalRefused(await why())
            await self._clock.sleep(POLL)


def _is_complete(metadata: Metadata, status: DaemonSetStatus) -> bool:
    """Return whether every node has a ready pod of the latest generation."""
    desired = status.desired_number_scheduled
    return (
        status.observed_generation >= metadata.generation
        and status.updated_number_scheduled == status.number_ready == desired
        and status.number_misscheduled == 0
    )


def _requests_gpu(pod: Pod) -> bool:
    return any(
        name.startswith(GPU_RESOURCES)
        for container in pod.spec.containers
        for name in container.resources.limits
    )


def _is_ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
