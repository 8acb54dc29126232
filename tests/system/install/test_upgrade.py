"""`helm upgrade` to a second version on two real nodes, while the driver of one is upgraded."""

import asyncio
from pathlib import Path

from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.policy.render.driver import APP as DRIVER
from libs.policy.render.rendered import EXPORTER
from libs.testing.image.driver_settings import DriverSettings
from tests.component.real_upgrade.audit_checks import read_audit_log
from tests.support import eventually
from tests.system.install.release import AGENTS
from tests.system.install.second import (
    NATS,
    OF_OTHERS,
    SECOND,
    restarted,
    second_chart,
    until_second,
)
from tests.system.install.world import NEXT, SOAK_ONLY, VERSION, World

DRIVER_AGENT = "nvidia-container-toolkit-daemonset"
WITH_DRIVER = ("nvidia-device-plugin-daemonset", EXPORTER)
"""Agents that are Ready where a driver is, so that no other node's is replaced before."""


async def states(world: World) -> dict[str, str]:
    nodes = (await world.kubectl.get("nodes"))["items"]
    return {
        node["metadata"]["name"]: node["metadata"]["labels"].get(STATE_LABEL, "") for node in nodes
    }


async def until_all_run(world: World, version: str, *, within: float) -> None:
    """Wait until every node has this driver, and is done."""

    async def all_run() -> bool:
        done = {UpgradeState.UPGRADE_DONE.value}
        loaded = {machine.kernel.version() for machine in world.machines}
        return loaded == {version} and {*(await states(world)).values()} == done

    try:
        await eventually(all_run, within=within, every=1.0)
    except TimeoutError:
        raise AssertionError(await world.story()) from None


async def until_installed_by_one(world: World) -> str:
    """Wait until a driver of the next version is being installed; return the name of the node."""
    found: list[str] = []

    async def installs() -> bool:
        pods = (await world.running()).values()
        found[:] = [pod.node for pod in pods if pod.app == DRIVER and pod.tag.startswith(NEXT)]
        return bool(found)

    await eventually(installs, within=240, every=0.5)
    (node,) = found
    return node


async def cordoned(world: World) -> list[str]:
    nodes = (await world.kubectl.get("nodes"))["items"]
    return [each["metadata"]["name"] for each in nodes if each["spec"].get("unschedulable")]


@SOAK_ONLY
async def test_sluice_is_upgraded_while_a_driver_is(pair: World, tmp_path: Path) -> None:
    """All nodes are cordoned when Helm is called, as a single one is: new pods of services wait,
    and those of the first version go on. NATS is killed while they are replaced, and the driver
    agent while the driver is installed: nothing else is restarted by that.
    """
    await pair.install()
    await pair.until_rolled_out("deployment", within=300)
    await pair.until_agents_are_ready(AGENTS, within=300)
    await until_all_run(pair, VERSION, within=300)
    await pair.tag_image(SECOND)
    installed = await pair.running()

    for machine in pair.machines:
        machine.set_driver(NEXT, DriverSettings(hangs=True))
    pair.values["driver"]["version"] = NEXT
    await pair.helm("upgrade")
    in_flight = await until_installed_by_one(pair)
    under_way = await pair.running()
    # Another driver is no reason to restart anything else.
    gone, new = installed.keys() - under_way.keys(), under_way.keys() - installed.keys()
    assert [installed[uid][:2] for uid in gone] == [(DRIVER, in_flight)]
    assert [under_way[uid][:2] for uid in new] == [(DRIVER, in_flight)]
    assert restarted(under_way) == {}

    (other,) = (node.name for node in pair.ground.nodes if node.name != in_flight)
    await pair.kubectl.run("cordon", other)
    pair.values["image"]["tag"] = SECOND
    pair.values["operator"] = {"logging": {"level": "debug"}}
    await pair.helm("upgrade", chart=second_chart(tmp_path))
    await until_services_wait(pair)
    assert await pair.running() == under_way, "nothing has stopped"
    (nats,) = (uid for uid, pod in under_way.items() if pod.app == NATS)
    await pair.kill(nats)
    await pair.kubectl.run("uncordon", other)
    await pair.until_rolled_out("deployment", within=300)
    await until_second(pair, besides={(app, other) for app in WITH_DRIVER})
    upgraded = await pair.running()
    kept = {uid for uid, pod in under_way.items() if pod.app in OF_OTHERS}
    assert kept <= upgraded.keys(), "NATS and drivers run on"
    assert restarted(upgraded) == {nats: 1}
    assert await cordoned(pair) == [in_flight]

    (agent,) = (uid for uid, pod in upgraded.items() if pod[:2] == (DRIVER_AGENT, in_flight))
    await pair.kill(agent)
    for machine in pair.machines:
        machine.set_driver(NEXT, DriverSettings())
    await until_all_run(pair, NEXT, within=400)
    await until_second(pair)
    await pair.until_agents_are_ready(AGENTS, within=240)
    done = await pair.running()
    # The driver that was being installed is the one that runs; nothing else was restarted again.
    again = upgraded.keys() - done.keys()
    assert {upgraded[uid][:2] for uid in again} <= {(app, other) for app in (DRIVER, *WITH_DRIVER)}
    assert restarted(done) == {nats: 1, agent: 1}
    assert await cordoned(pair) == []
    assert [machine.incidents() for machine in pair.machines] == [[], []]
    await assert_audit_passes(pair)


async def until_services_wait(world: World) -> None:
    """Wait until a new pod of each service is Pending, since no node takes it."""
    listed = await world.in_namespace("get", "deployments", "-o", "name")

    async def wait() -> bool:
        pending = "--field-selector=status.phase=Pending"
        return len((await world.in_namespace("get", "pods", pending, "-o", "name")).split()) == len(
            listed.split()
        )

    await eventually(wait, within=60, every=0.5)


async def assert_audit_passes(world: World) -> None:
    """Judge what the API server and the bus recorded; every right was there."""
    verdict = await world.audit()
    judged = {each["name"] for each in verdict["invariants"] if each["judged"]}
    assert judged >= {"I1", "I2", "I3", "I4", "I6", "I8", "I9"}, verdict
    assert [each for each in verdict["invariants"] if each["violations"]] == []
    log = await asyncio.to_thread(read_audit_log, world.ground.kube.audit_log)
    assert log.forbidden == {}, log.forbidden
