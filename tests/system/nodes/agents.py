"""The agents of an installation on real nodes: when they are Ready, and why not."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from libs.contracts.identities import Writer
from libs.policy.validation import PRESENT_LABEL
from tests.system.nodes.installation import NAMESPACE, Installation

DISCOVERY: Final = "sluice-discovery-agent"
AGENTS: Final = (
    "sluice-device-plugin",
    DISCOVERY,
    "sluice-driver-agent",
    "sluice-telemetry-agent",
    "sluice-validator-agent",
)
_WITHIN: Final = 240.0
_CHECK_EVERY: Final = 0.1

Object = dict[str, Any]


def agent_of(pod: Object) -> str:
    return pod["metadata"]["ownerReferences"][0]["name"]


def ready_after(pod: Object) -> float | None:
    """Return the seconds from the pod's creation until it was Ready; None if it is not."""
    for condition in pod["status"].get("conditions", []):
        if (condition["type"], condition["status"]) == ("Ready", "True"):
            times = (condition["lastTransitionTime"], pod["metadata"]["creationTimestamp"])
            ready, created = map(datetime.fromisoformat, times)
            return (ready - created).total_seconds()
    return None


def _owned_pods(objects: list[Object]) -> list[Object]:
    """Return the pods of agents: those that only bear the names of services have no owner."""
    return [each for each in objects if each["metadata"].get("ownerReferences")]


def _pods(agents: Sequence[str], *, ready: bool) -> Callable[[list[Object]], bool]:
    """Return whether every node has these agents."""

    def are_there(objects: list[Object]) -> bool:
        nodes = sum(each["kind"] == "Node" for each in objects)
        pods = _owned_pods(objects)
        found = Counter(agent_of(pod) for pod in pods if not ready or ready_after(pod) is not None)
        return all(found[agent] == nodes for agent in agents)

    return are_there


def _are_labelled(objects: list[Object]) -> bool:
    nodes = [each for each in objects if each["kind"] == "Node"]
    return all(node["metadata"]["labels"].get(PRESENT_LABEL) == "true" for node in nodes)


LINKS: Final[Mapping[str, Callable[[list[Object]], bool]]] = {
    "discovery's agents are created": _pods((DISCOVERY,), ready=False),
    "discovery's agents are Ready": _pods((DISCOVERY,), ready=True),
    "the nodes are labelled": _are_labelled,
    "all agents are created": _pods(AGENTS, ready=False),
    "all agents are Ready": _pods(AGENTS, ready=True),
}
"""What a policy leads to, each by the one before it."""


async def until_services_lead(installation: Installation) -> float:
    """Return the seconds until the cluster roles have their leases."""
    started = asyncio.get_running_loop().time()
    for writer in (Writer.DRIVER_CLUSTER, Writer.DISCOVERY_CLUSTER):
        await installation.services[writer].wait_for_log("lease taken", within=_WITHIN)
    return asyncio.get_running_loop().time() - started


async def until_agents_are_ready(
    installation: Installation,
) -> tuple[list[Object], Mapping[str, float]]:
    """Return the agents' pods once they all are Ready, and the seconds until each of `LINKS`."""
    clock = asyncio.get_running_loop()
    started = clock.time()
    seen: dict[str, float] = {}
    while True:
        listed = await installation.kubectl.get("nodes,pods", "--namespace", NAMESPACE)
        objects = listed["items"]
        for name, is_there in LINKS.items():
            if name not in seen and is_there(objects):
                seen[name] = clock.time() - started
        if len(seen) == len(LINKS):
            return _owned_pods(objects), seen
        if clock.time() - started > _WITHIN:
            raise AssertionError(await _story(installation, seen))
        await asyncio.sleep(_CHECK_EVERY)


async def _story(installation: Installation, seen: Mapping[str, float]) -> str:
    """Return why agents are not Ready, as a person would look for it."""
    run, namespace = installation.kubectl.run, ("--namespace", NAMESPACE)
    on_nodes = "--field-selector=spec.nodeName!="
    names = (await run("get", "pods", *namespace, on_nodes, "--output", "name")).split()
    texts = [
        *(f"{name}: after {after:.1f} s" for name, after in seen.items()),
        await run("get", "nodes", "--show-labels"),
        await run("get", "pods", *namespace),
        *[await run("logs", *namespace, name, "--tail=15", "--ignore-errors") for name in names],
        *(service.log for service in installation.services.values()),
    ]
    return "\n".join(texts)
