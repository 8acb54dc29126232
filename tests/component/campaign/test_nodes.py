"""Machines with their agents: a kill, a reboot, and an agent that stays dead."""

import pytest

from demo.node import SimulatedNode
from libs.contracts.identities import Identity, Writer
from libs.contracts.node import STATE_LABEL
from libs.contracts.waits import WaitCode
from libs.testing.stage.worlds import SteadyWorld
from services.scheduler import resources
from tests.component.campaign.admin import NEW, OLD, POOL
from tests.component.campaign.observers import BusObserver
from tests.component.campaign.world import CampaignWorld, run_world

AGENTS = (Writer.DISCOVERY, Writer.DRIVER, Writer.PLUGIN, Writer.TELEMETRY, Writer.VALIDATOR)


async def start_world(world: CampaignWorld, *nodes: str) -> None:
    await world.install()
    await world.sleep(1)
    for name in nodes or ("a",):
        world.add_machine(name)
    await world.apply_policy(OLD, maxUnavailable=1)
    world.keep_running()
    assert await world.until(world.is_rolled_out, within=200.0)


def running_agents(world: CampaignWorld) -> list[Writer]:
    return [writer for writer in AGENTS if world.nodes["a"].is_running(writer)]


def test_agents_run_in_the_rendered_pods_with_their_own_journals() -> None:
    async def story(world: CampaignWorld) -> None:
        await start_world(world)
        node_a = world.nodes["a"]
        assert running_agents(world) == list(AGENTS)
        written = [
            (entry.component, entry.command, entry.phase) for entry in await node_a.entries()
        ]
        assert ("driver", "swap", "finished") in written
        assert ("validator", "validate", "finished") in written
        assert {entry.node_uid for entry in await node_a.entries()} == {node_a.kubelet.node_uid}
        assert node_a.failures == []
        assert node_a.machine.incidents == ()

    run_world(story, seed=1, model=SteadyWorld())


def test_a_killed_agent_is_restarted_by_its_kubelet_and_continues() -> None:
    async def story(world: CampaignWorld) -> None:
        await start_world(world)
        node_a = world.nodes["a"]
        before = await node_a.entries()
        assert node_a.kill(Writer.DRIVER)
        assert not node_a.kill(Writer.DRIVER)
        await world.sleep(15)
        assert running_agents(world) == list(AGENTS)
        assert await node_a.entries() == before
        assert node_a.failures == []

    run_world(story, seed=1, model=SteadyWorld())


def test_after_a_reboot_the_proven_driver_is_loaded_and_validated() -> None:
    async def story(world: CampaignWorld) -> None:
        await start_world(world)
        machine = world.nodes["a"].machine
        before = machine.boot_id
        assert await machine.reboot()
        assert machine.driver is None
        await world.sleep(120)
        assert machine.boot_id != before
        assert running_agents(world) == list(AGENTS)
        assert machine.driver is not None
        assert machine.driver.version == OLD
        node = await world.kube.get(resources.NODES, "a")
        assert node.metadata.labels[STATE_LABEL] == "upgrade-done"
        assert machine.boot_id in node.metadata.annotations["sluice.dev/upgrade"]
        assert machine.incidents == ()

    run_world(story, seed=1, model=SteadyWorld(boot_seconds=60.0))


NODES = ("a", "b", "c")


def loaded_version(sim_node: SimulatedNode) -> str:
    """Return the version of the driver in the kernel."""
    return sim_node.machine.driver.version if sim_node.machine.driver else ""


@pytest.mark.dear("a rollout by all services, agents and machines at once")
def test_a_node_waits_for_its_dead_driver_agent_while_the_others_upgrade() -> None:
    async def story(world: CampaignWorld) -> None:
        observer = BusObserver(pool=POOL, max_unavailable="1")
        world.add_bus_listener(observer.observe)
        await start_world(world, *NODES)
        dead = Identity(writer=Writer.DRIVER, node="a")
        world.bus.cut(dead)
        world.nodes["a"].kill(Writer.DRIVER)
        await world.apply_policy(NEW)
        await world.sleep(300)
        wait = observer.wait_of("a")
        assert wait is not None
        assert wait.code == WaitCode.AGENT_SILENT
        assert [loaded_version(world.nodes[name]) for name in NODES] == [OLD, NEW, NEW]
        world.bus.restore(dead)
        assert await world.until(world.is_rolled_out, within=200.0)
        assert observer.wait_of("a") is None
        assert [loaded_version(world.nodes[name]) for name in NODES] == [NEW, NEW, NEW]
        assert all(sim_node.machine.incidents == () for sim_node in world.nodes.values())

    run_world(story, seed=3, model=SteadyWorld(load_seconds=5.0, validation_seconds=3.0))
