"""One driver upgrade on a real control plane, from the version change to the last uncordon.

Services have the rendered rights only. The scheduler is killed in every state, a person cordons a
node midway, and the audit reads the API server's own log.
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
"""All states of a successful upgrade (docs/states.md#states)."""

IDLE = {
    # Used with policies of those kinds only.
    "sluice-driver-cluster: nvidiadrivers/status patch",
    "sluice-driver-cluster: gpuclusterpolicies/status patch",
    "sluice-driver-cluster: rolloutstrategies/status patch",
    # Used to report problems only.
    "sluice-driver-cluster: events create patch",
    # Used when the health of a GPU changes only.
    "sluice-discovery-cluster: events create patch",
    # Used to recreate a driver pod under the same label only.
    "sluice-scheduler: pods delete",
    # Used for plans only.
    "sluice-scheduler: poddisruptionbudgets list",
    # Used where an operand is switched off only.
    "sluice-driver-cluster: runtimeclasses delete",
    # Used where a policy offers GPUs by claims, or has done so, only.
    "sluice-driver-cluster: deviceclasses delete",
    "sluice-driver-cluster: resourceclaims get list watch",
    "sluice-dra: resourceclaims get",
    "sluice-dra: resourceslices get list watch create patch",
    # Used where a policy enables the ServiceMonitor only.
    "sluice-driver-cluster: servicemonitors create patch delete",
    # Used where the Lease was not installed only.
    "sluice-discovery-cluster: leases create",
    "sluice-driver-cluster: leases create",
    "sluice-scheduler: leases create",
    # Used for tokens that the published keys do not show to be true only.
    "sluice-sign-in: tokenreviews create",
}
"""Rights that this upgrade does not use; all others are needed."""


class CordonDuringTakeover:
    """Cordon a node that has not started, while another is in flight and there is no leader."""

    def __init__(self, admin: UpgradeAdmin) -> None:
        self._admin = admin
        self.cordoned: list[str] = []

    async def cordon(self, kill: LeaderKill) -> None:
        if self.cordoned or kill.state is not UpgradeState.WAIT_FOR_JOBS_REQUIRED:
            return
        cordoned_nodes = await self._admin.cordoned()
        self.cordoned = [name for name in MACHINES if name not in cordoned_nodes][:1]
        for name in self.cordoned:
            await self._admin.cordon(name)


@pytest.mark.dear("a control plane, all services with their rights, killed in every state")
async def test_an_upgrade_with_killed_leaders_completes_and_passes_the_audit(
    binaries: Binaries,
) -> None:
    async with provision(binaries, MACHINES) as installation:
        admin = UpgradeAdmin(installation)
        await installation.install()
        await admin.apply_policy(OLD)
        await installation.start()
        async with observe_driverless(installation) as observer:
            await installation.until(lambda: admin.all_run(OLD), within=UP_WITHIN)
            takeover = CordonDuringTakeover(admin)
            kills = await upgrade(installation, admin, takeover)
            cordoned = await admin.cordoned()
        log = await assert_audit_passes(installation, observer)
        assert log.unused_rights() == IDLE
        assert {kill.state for kill in kills} >= set(STATES)
        assert all(kill.before != kill.after for kill in kills)
        assert cordoned == takeover.cordoned != []


async def upgrade(
    installation: Installation, admin: UpgradeAdmin, takeover: CordonDuringTakeover
) -> list[LeaderKill]:
    """Upgrade the fleet while leaders are killed."""
    killer = LeaderKiller(installation, STATES, between=takeover.cordon)
    await admin.create_workloads()
    async with killer.watch_nodes():
        await installation.person.set_driver_version(NEW)
        await installation.finish(killer.run(), within=MOVED_WITHIN)
    await installation.until(lambda: admin.all_run(NEW), within=UP_WITHIN)
    return killer.kills
