"""A machine whose agent is dead: it keeps its driver, says why, and holds up nobody."""

from demo.node import SimulatedNode
from libs.contracts.identities import Identity, Writer
from libs.contracts.waits import WaitCode
from libs.forecast.world import SteadyWorld
from tests.component.campaign.admin import POOL
from tests.component.campaign.bus_observer import BusObserver
from tests.component.campaign.scenario import NEW, OLD
from tests.component.campaign.world import CampaignWorld, run_world

NODES = ("a", "b", "c")


def runs(station: SimulatedNode) -> str:
    """The version of the driver that is in its kernel."""
    return station.machine.driver.version if station.machine.driver else ""


def test_a_node_whose_driver_agent_is_dead_says_that_it_waits_for_it() -> None:
    async def story(town: CampaignWorld) -> None:
        overheard = BusObserver(pool=POOL, max_unavailable="1")
        town.add_bus_listener(overheard.observe)
        await town.install()
        await town.sleep(1)
        for name in NODES:
            town.add_machine(name)
        await town.apply_policy(OLD, maxUnavailable=1)
        town.keep_running()
        assert await town.until(town.is_rolled_out, within=200.0) is not None
        dead = Identity(writer=Writer.DRIVER, node="a")
        town.bus.cut(dead)
        town.nodes["a"].kill(Writer.DRIVER)
        await town.apply_policy(NEW)
        await town.sleep(300)
        wait = overheard.wait_of("a")
        assert wait is not None
        assert wait.code == WaitCode.AGENT_SILENT
        assert [runs(town.nodes[name]) for name in NODES] == [OLD, NEW, NEW]
        town.bus.restore(dead)
        assert await town.until(town.is_rolled_out, within=200.0) is not None
        assert overheard.wait_of("a") is None
        assert [runs(town.nodes[name]) for name in NODES] == [NEW, NEW, NEW]
        assert all(one.machine.incidents == () for one in town.nodes.values())

    run_world(story, seed=3, model=SteadyWorld(load_seconds=5.0, validation_seconds=3.0))
