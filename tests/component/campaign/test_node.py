"""One machine with its agents: who lives there, and what a death or a boot does to them."""

from libs.contracts.identities import Writer
from libs.contracts.node import STATE_LABEL
from libs.forecast.world import SteadyWorld
from services.scheduler import resources
from tests.component.campaign.scenario import OLD
from tests.component.campaign.world import CampaignWorld, run_world

AGENTS = (Writer.DISCOVERY, Writer.DRIVER, Writer.TELEMETRY, Writer.VALIDATOR)


async def up(town: CampaignWorld) -> None:
    await town.install()
    await town.sleep(1)
    town.add_machine("a")
    await town.apply_policy(OLD)
    town.keep_running()
    assert await town.until(town.is_rolled_out, within=120.0) is not None


def running_agents(town: CampaignWorld) -> list[Writer]:
    return [writer for writer in AGENTS if town.nodes["a"].is_running(writer)]


def test_agents_live_in_the_pods_that_are_rendered_and_write_journals_of_their_own() -> None:
    async def story(town: CampaignWorld) -> None:
        await up(town)
        station = town.nodes["a"]
        assert running_agents(town) == list(AGENTS)
        written = [(one.component, one.command, one.phase) for one in await station.entries()]
        assert ("driver", "swap", "finished") in written
        assert ("validator", "validate", "finished") in written
        assert {one.node_uid for one in await station.entries()} == {station.kubelet.node_uid}
        assert station.failures == []
        assert station.machine.incidents == ()

    run_world(story, seed=1, model=SteadyWorld())


def test_an_agent_that_dies_is_started_again_by_its_kubelet_and_goes_on() -> None:
    async def story(town: CampaignWorld) -> None:
        await up(town)
        station = town.nodes["a"]
        before = await station.entries()
        assert station.kill(Writer.DRIVER)
        assert not station.kill(Writer.DRIVER)
        await town.sleep(15)
        assert running_agents(town) == list(AGENTS)
        assert await station.entries() == before
        assert station.failures == []

    run_world(story, seed=1, model=SteadyWorld())


def test_after_a_boot_the_gate_opens_for_what_is_proven_and_it_is_validated_again() -> None:
    async def story(town: CampaignWorld) -> None:
        await up(town)
        machine = town.nodes["a"].machine
        before = machine.boot_id
        assert await machine.reboot()
        assert machine.driver is None
        await town.sleep(120)
        assert machine.boot_id != before
        assert running_agents(town) == list(AGENTS)
        assert machine.driver is not None
        assert machine.driver.version == OLD
        node = await town.kube.get(resources.NODES, "a")
        assert node.metadata.labels[STATE_LABEL] == "upgrade-done"
        assert machine.boot_id in node.metadata.annotations["sluice.dev/upgrade"]
        assert machine.incidents == ()

    run_world(story, seed=1, model=SteadyWorld(boot_seconds=60.0))
