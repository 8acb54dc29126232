"""A machine whose agent is dead: it keeps its driver, says why, and holds up nobody."""

from demo.station import Station
from libs.contracts.identities import Identity, Writer
from libs.contracts.waits import WaitCode
from libs.forecast.world import Steady
from tests.component.campaign.person import POOL
from tests.component.campaign.scenario import NEW, OLD
from tests.component.campaign.town import Town, play
from tests.component.campaign.witness import Overheard

NODES = ("a", "b", "c")


def runs(station: Station) -> str:
    """The version of the driver that is in its kernel."""
    return station.machine.driver.version if station.machine.driver else ""


def test_a_node_whose_driver_agent_is_dead_says_that_it_waits_for_it() -> None:
    async def story(town: Town) -> None:
        overheard = Overheard(pool=POOL, max_unavailable="1")
        town.hear(overheard.hear)
        await town.install()
        await town.sleep(1)
        for name in NODES:
            town.machine(name)
        await town.want(OLD, maxUnavailable=1)
        town.keep()
        assert await town.until(town.in_place, within=200.0) is not None
        dead = Identity(writer=Writer.DRIVER, node="a")
        town.bus.cut(dead)
        town.stations["a"].kill(Writer.DRIVER)
        await town.want(NEW)
        await town.sleep(300)
        wait = overheard.wait("a")
        assert wait is not None
        assert wait.code == WaitCode.AGENT_SILENT
        assert [runs(town.stations[name]) for name in NODES] == [OLD, NEW, NEW]
        town.bus.restore(dead)
        assert await town.until(town.in_place, within=200.0) is not None
        assert overheard.wait("a") is None
        assert [runs(town.stations[name]) for name in NODES] == [NEW, NEW, NEW]
        assert all(one.machine.oddities == () for one in town.stations.values())

    play(story, seed=3, model=Steady(loading=5.0, validating=3.0))
