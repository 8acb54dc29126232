"""One driver upgrade on a real Kubernetes control plane, from a person's patch to the last release.

Our services have the rights that the installation renders, and nothing more. The scheduler is
killed in every state of the way, a person cordons a node midway, and the API server's own log is
what the audit reads.
"""

import pytest

from libs.contracts.node import UpgradeState
from libs.testing.realkube.binaries import Binaries
from tests.component.real_upgrade.admin import NEW, OLD, UpgradeAdmin
from tests.component.real_upgrade.audit_checks import assert_audit_passes, observe_driverless
from tests.component.real_upgrade.installation import Installation, provision
from tests.component.real_upgrade.leader_kills import LeaderKill, LeaderKiller

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


class CordonDuringTakeover:
    """A person cordons a node that has not begun, while another is on its way and nobody leads."""

    def __init__(self, people: UpgradeAdmin) -> None:
        self._people = people
        self.cordoned: list[str] = []

    async def cordon(self, death: LeaderKill) -> None:
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
    async with provision(binaries, MACHINES) as here:
        people = UpgradeAdmin(here)
        await here.install()
        await people.apply_policy(OLD)
        await here.start()
        async with observe_driverless(here) as witness:
            await here.until(lambda: people.all_run(OLD), within=UP_WITHIN)
            midway = CordonDuringTakeover(people)
            deaths = await moved(here, people, midway)
            cordoned = await people.cordoned()
        log = await assert_audit_passes(here, witness)
        assert log.unused_rights() == IDLE
        assert {death.state for death in deaths} >= set(STATES)
        assert all(death.before != death.after for death in deaths)
        assert cordoned == midway.cordoned != []


async def moved(
    here: Installation, people: UpgradeAdmin, midway: CordonDuringTakeover
) -> list[LeaderKill]:
    """The fleet has the new driver, whoever led and died on the way."""
    reaper = LeaderKiller(here, STATES, between=midway.cordon)
    await people.create_workloads()
    async with reaper.watch_nodes():
        await here.person.set_driver_version(NEW)
        await here.finish(reaper.run(), within=MOVED_WITHIN)
    await here.until(lambda: people.all_run(NEW), within=UP_WITHIN)
    return reaper.kills
