"""An upgrade of nodes whose GPUs are given by claims: what is awaited, said, and withdrawn."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.testing.image.driver_settings import DriverSettings
from services.driver.cluster.claim_follower import REASON
from services.driver.plugin.inventory import RELEASED
from tests.summary import FIGURE
from tests.system.upgrade.audit import assert_audit_passes, entries_of, observe_driverless
from tests.system.upgrade.claims import (
    JOBS,
    POLICY,
    bound_pod,
    claimed_service,
    claiming_pod,
    config,
    gpus_and_drivers,
    job_on,
    published,
)
from tests.system.upgrade.kills import SOAK_ONLY
from tests.system.upgrade.order import (
    EVICTED,
    EXCHANGED,
    PUBLISHED,
    WITHDRAWN,
    seconds_until_said,
    steps,
)
from tests.system.upgrade.prepared import PreparedClaims, prepared_claims
from tests.system.upgrade.states import node_states
from tests.system.upgrade.workload import SERVICE
from tests.system.upgrade.world import NEW, OLD, World

pytestmark = SOAK_ONLY

RUNS_WITHIN, SAID_WITHIN, UPGRADED_WITHIN = 240.0, 60.0, 420.0
LATE: Final = "late"
ONE_MAY_MISS: Final = '{"spec": {"maxUnavailable": 1}}'
NOT_PREPARED: Final = "FailedPrepareDynamicResources"
"""The reason of the kubelet's Event."""

Pods = dict[str, dict[str, str]]
"""The uids of users' pods by node and name."""


async def test_an_upgrade_drains_claims(
    world: World, record_property: Callable[[str, object], None]
) -> None:
    await world.apply_policy(OLD, **POLICY)
    async with observe_driverless(world) as observer, prepared_claims(world) as prepared:
        await world.until_all_run(OLD, within=RUNS_WITHIN)
        users = await run_users(world)
        began = time.time()
        await upgrade(world, users, prepared)
        seconds = time.time() - began
        await run_on_the_new_driver(world, prepared)
        log = await assert_audit_passes(world, observer)
    said = max(seconds_until_said(log.revisions))
    record_property(FIGURE, f"upgrade of two nodes with claims: {seconds:.0f} s")
    record_property(FIGURE, f"claims said why they wait {said:.1f} s after that at most")
    for node in world.ground.nodes:
        entries = await entries_of(node)
        pods = users[node.name]
        happened = steps(log.revisions, entries, node=node.name, pods=pods, since=began)
        assert happened == [EVICTED, WITHDRAWN, *EXCHANGED.values(), PUBLISHED], node.name


async def upgrade(world: World, users: Pods, prepared: PreparedClaims) -> None:
    """Upgrade both nodes; what the first one waits for is ended by people."""
    set_driver(world, DriverSettings(hangs=True))
    async with node_states(world.ground.kube) as states:
        await world.apply_policy(NEW, jobs=JOBS, **POLICY)
        async with asyncio.timeout(RUNS_WITHIN):
            first = await states.first(UpgradeState.WAIT_FOR_JOBS_REQUIRED)
        await be_waited_for(world, first, users, prepared)
        await world.kubectl.run("patch", f"pdb/{SERVICE}", "--type=merge", f"-p={ONE_MAY_MISS}")
        async with asyncio.timeout(RUNS_WITHIN):
            assert await states.first(UpgradeState.POD_RESTART_REQUIRED) == first
    await be_refused(world, first, prepared)
    set_driver(world, DriverSettings())
    await world.until_all_run(NEW, within=UPGRADED_WITHIN)


def set_driver(world: World, settings: DriverSettings) -> None:
    for machine in world.machines:
        machine.set_driver(NEW, settings)


async def run_users(world: World) -> Pods:
    """Run a service and jobs once all GPUs can be claimed; return their pods."""
    await until_published(world, OLD)
    names = [node.name for node in world.ground.nodes]
    await world.kubectl.apply(*claimed_service(len(names)), *map(job_on, names))
    await world.kubectl.wait("condition=Available", f"deployment/{SERVICE}")
    await world.kubectl.wait("jsonpath={.status.ready}=1", *(f"job/train-{name}" for name in names))
    return await users_pods(world)


async def be_waited_for(world: World, node: str, users: Pods, prepared: PreparedClaims) -> None:
    """Wait until a node waits for its job, then for the budget; the service keeps its GPU."""
    await world.until_waiting(node, WaitCode.JOBS, f"default/train-{node}-", within=SAID_WITHIN)
    await until_said(world, node)
    for each in world.ground.nodes:
        await world.kubectl.run("exec", f"job/train-{each.name}", "--", "touch", "/done")
    await world.until_waiting(node, WaitCode.PDB, f"default/{SERVICE}-", within=SAID_WITHIN)
    (service,) = [name for name in users[node] if name.startswith(f"{SERVICE}-")]
    (held,) = [claim for claim, pod in (await claims_of(world, node)).items() if pod == service]
    await world.kubectl.apply(*bound_pod(LATE, node))
    bound = "jsonpath={.status.allocation.devices.results[0].pool}=" + node
    await world.kubectl.wait(bound, f"resourceclaim/{LATE}")
    await until_said(world, node)

    async def is_all() -> bool:
        return prepared.now[node] == {held}

    await world.until(is_all, within=SAID_WITHIN)
    assert held in prepared.used
    assert (await users_pods(world))[node][service] == users[node][service]
    assert world.machine(node).kernel.version() == OLD


async def be_refused(world: World, node: str, prepared: PreparedClaims) -> None:
    """Wait until a bound pod says why its claim is not prepared: the drivers are exchanged."""
    assert (await published(world.kubectl))[node] == []
    await world.kubectl.apply(config())

    async def is_said() -> bool:
        said = (await said_about(world, NOT_PREPARED)).get(("Pod", LATE), "")
        return RELEASED in said

    await world.until(is_said, within=SAID_WITHIN)
    assert prepared.now[node] == set()


async def run_on_the_new_driver(world: World, prepared: PreparedClaims) -> None:
    """Wait until pods with claims run on the new driver: those that waited, and new ones."""
    await until_published(world, NEW)
    new = {f"new-on-{node.name}": node.name for node in world.ground.nodes}
    for name, node in new.items():
        await world.kubectl.apply(*claiming_pod(name, node))
    pods = (LATE, *new)
    await world.kubectl.wait("condition=Ready", *(f"pod/{name}" for name in pods))
    await world.kubectl.wait("condition=Available", f"deployment/{SERVICE}")
    assert await world.cordoned() == []
    for name in pods:
        assert await gpus_and_drivers(world.kubectl, name) == (1, {NEW})

    async def are_used() -> bool:
        return prepared.used.issuperset(pods)

    await world.until(are_used, within=SAID_WITHIN)
    assert {prepared.drivers[name] for name in pods} == {NEW}


async def until_said(world: World, node: str) -> None:
    """Wait until an Event on each claim of a node, and on its pod, says that its driver changes."""

    async def is_said() -> bool:
        claims = await claims_of(world, node)
        wanted = {("ResourceClaim", claim) for claim in claims}
        wanted |= {("Pod", pod) for pod in claims.values()}
        said = await said_about(world, REASON)
        return all(
            f"the driver of node {node} is being changed" in said.get(about, "") for about in wanted
        )

    await world.until(is_said, within=SAID_WITHIN)


async def said_about(world: World, reason: str) -> dict[tuple[str, str], str]:
    """Return the messages of all Events with a reason, by kind and name of what they are about."""
    found: dict[tuple[str, str], str] = {}
    for event in (await world.kubectl.get("events", f"--field-selector=reason={reason}"))["items"]:
        about = event["involvedObject"]["kind"], event["involvedObject"]["name"]
        found[about] = f"{found.get(about, '')}{event['message']}\n"
    return found


async def until_published(world: World, version: str) -> None:
    """Wait until all GPUs of all nodes can be claimed, with this driver."""
    # Versions in slices are semantic: their numbers have no leading zeros.
    shown = ".".join(str(int(part)) for part in version.split("."))
    wanted = {each.node.name: [shown] * len(each.gpus.gpus) for each in world.machines}

    async def is_published() -> bool:
        return await published(world.kubectl) == wanted

    await world.until(is_published, within=RUNS_WITHIN)


async def users_pods(world: World) -> Pods:
    found: Pods = {node.name: {} for node in world.ground.nodes}
    for pod in (await world.kubectl.get("pods"))["items"]:
        if node := pod["spec"].get("nodeName"):
            found[node][pod["metadata"]["name"]] = pod["metadata"]["uid"]
    return found


async def claims_of(world: World, node: str) -> dict[str, str]:
    """Return the pod of each claim that has a GPU of a node."""
    found: dict[str, str] = {}
    for claim in (await world.kubectl.get("resourceclaims"))["items"]:
        status = claim.get("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", [])
        for user in status.get("reservedFor", []):
            if any(each["pool"] == node for each in results):
                found[claim["metadata"]["name"]] = user["name"]
    return found
