"""One machine with its agents: who lives there, and what a death or a boot does to them."""

from libs.contracts.identities import Writer
from libs.contracts.node import STATE_LABEL
from libs.forecast.world import Steady
from services.scheduler import things
from tests.component.campaign.scenario import OLD
from tests.component.campaign.town import Town, play

AGENTS = (Writer.DISCOVERY, Writer.DRIVER, Writer.TELEMETRY, Writer.VALIDATOR)


async def up(town: Town) -> None:
    await town.install()
    await town.sleep(1)
    town.machine("a")
    await town.want(OLD)
    town.keep()
    assert await town.until(town.in_place, within=120.0) is not None


def living(town: Town) -> list[Writer]:
    return [writer for writer in AGENTS if town.stations["a"].lives(writer)]


def test_agents_live_in_the_pods_that_are_rendered_and_write_journals_of_their_own() -> None:
    async def story(town: Town) -> None:
        await up(town)
        station = town.stations["a"]
        assert living(town) == list(AGENTS)
        written = [(one.component, one.command, one.phase) for one in await station.entries()]
        assert ("driver", "swap", "finished") in written
        assert ("validator", "validate", "finished") in written
        assert {one.node_uid for one in await station.entries()} == {station.kubelet.node_uid}
        assert station.failures == []
        assert station.machine.oddities == ()

    play(story, seed=1, model=Steady())


def test_an_agent_that_dies_is_started_again_by_its_kubelet_and_goes_on() -> None:
    async def story(town: Town) -> None:
        await up(town)
        station = town.stations["a"]
        before = await station.entries()
        assert station.kill(Writer.DRIVER)
        assert not station.kill(Writer.DRIVER)
        await town.sleep(15)
        assert living(town) == list(AGENTS)
        assert await station.entries() == before
        assert station.failures == []

    play(story, seed=1, model=Steady())


def test_after_a_boot_the_gate_opens_for_what_is_proven_and_it_is_validated_again() -> None:
    async def story(town: Town) -> None:
        await up(town)
        machine = town.stations["a"].machine
        before = machine.boot_id
        assert await machine.reboot()
        assert machine.driver is None
        await town.sleep(120)
        assert machine.boot_id != before
        assert living(town) == list(AGENTS)
        assert machine.driver is not None
        assert machine.driver.version == OLD
        node = await town.kube.get(things.NODES, "a")
        assert node.metadata.labels[STATE_LABEL] == "upgrade-done"
        assert machine.boot_id in node.metadata.annotations["sluice.dev/upgrade"]
        assert machine.oddities == ()

    play(story, seed=1, model=Steady(booting=60.0))
