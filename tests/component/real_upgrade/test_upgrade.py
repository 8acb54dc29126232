"""One driver upgrade on a real Kubernetes control plane, from a person's patch to the last release.

Our services have the rights that the installation renders, and nothing more. The scheduler is
killed in every state of the way, a person cordons a node midway, and the API server's own log is
what the audit reads.
"""

import pytest

from libs.contracts.node import UpgradeState
from libs.testing.realkube.binaries import Binaries
from tests.component.real_upgrade.judging import kept_all_promises, witnessed
from tests.component.real_upgrade.people import NEW, OLD, People
from tests.component.real_upgrade.reaping import Death, Reaper
from tests.component.real_upgrade.site import Site, site

MACHINES = ("node-1", "node-2", "node-3")
UP_WITHIN, MOVED_WITHIN = 200.0, 400.0

STATES = (
    UpgradeState.UPGRADE_REQUIRED,
    UpgradeState.WAIT_FOR_JOBS_REQUIRED,
    UpgradeState.POD_DELETION_REQUIRED,
    UpgradeState.DRAIN_REQUIRED,
    UpgradeState.POD_RESTART_REQUIRED,
    UpgradeState.VALIDATION_REQUIRED,
    UpgradeState.UPGRADE_DONE,
)
"""All that are written on a way that ends well (docs/states.md#states)."""

IDLE = {
    # Only where there are policies of those kinds.
    "sluice-driver-cluster: nvidiadrivers/status patch",
    "sluice-driver-cluster: gpuclusterpolicies/status patch",
    "sluice-driver-cluster: rolloutstrategies/status patch",
    # Only where something has to be told that is not in order.
    "sluice-driver-cluster: events create patch",
    # Only where a driver pod is made anew under the same label.
    "sluice-scheduler: pods delete",
}
"""Rights that this upgrade makes no use of: all others are needed, and there are no more."""


class Midway:
    """A person cordons a node that has not begun, while another is on its way and nobody leads."""

    def __init__(self, people: People) -> None:
        self._people = people
        self.cordoned: list[str] = []

    async def happens(self, death: Death) -> None:
        if self.cordoned or death.state is not UpgradeState.WAIT_FOR_JOBS_REQUIRED:
            return
        underway = await self._people.cordoned()
        self.cordoned = [name for name in MACHINES if name not in underway][:1]
        for name in self.cordoned:
            await self._people.cordon(name)


@pytest.mark.timeout(800)
async def test_whoever_leads_and_dies_a_fleet_moves_and_keeps_every_promise(
    binaries: Binaries,
) -> None:
    async with site(binaries, MACHINES) as here:
        people = People(here)
        await here.install()
        await people.want(OLD)
        await here.start()
        async with witnessed(here) as witness:
            await here.until(lambda: people.all_run(OLD), within=UP_WITHIN)
            midway = Midway(people)
            deaths = await moved(here, people, midway)
            cordoned = await people.cordoned()
        log = await kept_all_promises(here, witness)
        assert log.idle() == IDLE
        assert {death.state for death in deaths} >= set(STATES)
        assert all(death.before != death.after for death in deaths)
        assert cordoned == midway.cordoned != []


async def moved(here: Site, people: People, midway: Midway) -> list[Death]:
    """The fleet has the new driver, whoever led and died on the way."""
    reaper = Reaper(here, STATES, between=midway.happens)
    await people.compute()
    async with reaper.watching():
        await here.person.change_to(NEW)
        await here.finish(reaper.run(), within=MOVED_WITHIN)
    await here.until(lambda: people.all_run(NEW), within=UP_WITHIN)
    return reaper.deaths
