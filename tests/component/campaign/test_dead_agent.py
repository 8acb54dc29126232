"""A machine whose agent is dead keeps its driver and does not hold up the others."""

from demo.node import SimulatedNode
from libs.contracts.identities import Identity, Writer
from libs.contracts.waits import WaitCode
from libs.testing.stage.worlds import SteadyWorld
from tests.component.campaign.admin import POOL
from tests.component.campaign.bus_observer import BusObserver
from tests.component.campaign.scenario import NEW, OLD
from tests.component.campaign.world import CampaignWorld, run_world

NODES = ("a", "b", "c")


def loaded_version(sim_node: SimulatedNode) -> str:
    """Return the version of the driver in the kernel."""
    return sim_node.machine.driver.version if sim_node.machine.driver else ""


def test_a_node_waits_for_its_dead_driver_agent_while_the_others_upgrade() -> None:
    async def story(world: CampaignWorld) -> None:
        observer = BusObserver(pool=POOL, max_unavailable="1")
        world.add_bus_listener(observer.observe)
        await world.install()
        await world.sleep(1)
        for name in NODES:
            world.add_machine(name)
        await world.apply_policy(OLD, maxUnavailable=1)
        world.keep_running()
        assert await world.until(world.is_rolled_out, within=200.0) is not None
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
        assert await world.until(world.is_rolled_out, within=200.0) is not None
        assert observer.wait_of("a") is None
        assert [loaded_version(world.nodes[name]) for name in NODES] == [NEW, NEW, NEW]
        assert all(sim_node.machine.incidents == () for sim_node in world.nodes.values())

    run_world(story, seed=3, model=SteadyWorld(load_seconds=5.0, validation_seconds=3.0))
