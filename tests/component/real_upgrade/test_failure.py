"""A driver that fails to load, on a real control plane: the scheduler is killed in
`upgrade-failed`, the next one halts the rollout, and a person resumes it.
"""

import msgspec
import pytest

from demo.admin import POOL
from demo.paths import NAMESPACE
from libs.contracts.node import DRIVER_LABEL, UpgradeState
from libs.contracts.rollout import RolloutPhase, RolloutStatus
from libs.kube.resources import DAEMON_SETS
from libs.testing.realkube.binaries import Binaries
from tests.component.real_upgrade.admin import NEW, UpgradeAdmin
from tests.component.real_upgrade.audit_checks import assert_audit_passes, observe_driverless
from tests.component.real_upgrade.installation import Installation, provision
from tests.component.real_upgrade.leader_kills import LeaderKill, LeaderKiller

FAILED_WITHIN, RECOVERED_WITHIN = 240.0, 200.0


@pytest.mark.dear("a control plane, and all services on it with their rights")
async def test_a_failure_outlives_the_leader_and_a_person_ends_the_halt(
    binaries: Binaries,
) -> None:
    async with provision(binaries, ["node-1"]) as installation:
        admin = UpgradeAdmin(installation)
        await installation.install()
        await installation.start()
        async with observe_driverless(installation) as observer:
            await admin.apply_policy(NEW)
            # Machines load a newly rendered driver only after some seconds.
            await installation.until(lambda: break_driver(installation), within=RECOVERED_WITHIN)
            kills = await wait_for_failure(installation)
            await installation.until(lambda: halted(installation), within=RECOVERED_WITHIN)
            (record,) = (await status(installation)).targets.values()

            installation.up.paths.bad_drivers.write_text("")
            await admin.accept_failures(1, target=(await status(installation)).target)
            await installation.until(lambda: admin.all_run(NEW), within=RECOVERED_WITHIN)
            after = await status(installation)
        await assert_audit_passes(installation, observer)
        assert [kill.state for kill in kills] == [UpgradeState.UPGRADE_FAILED]
        assert len(record.failed) == 1
        # A retry that succeeds does not undo the recorded failure.
        assert after.targets[after.target].failed == record.failed


async def break_driver(installation: Installation) -> bool:
    """Make the driver that is rendered now fail on every machine."""
    drivers = (await installation.kube.list_page(DAEMON_SETS, namespace=NAMESPACE)).items
    labels = [
        label for daemon_set in drivers if (label := daemon_set.metadata.labels.get(DRIVER_LABEL))
    ]
    installation.up.paths.bad_drivers.write_text("\n".join(labels))
    return bool(labels)


async def wait_for_failure(installation: Installation) -> list[LeaderKill]:
    """Wait until the node fails, killing the leader in that state."""
    killer = LeaderKiller(installation, [UpgradeState.UPGRADE_FAILED], between=do_nothing)
    async with killer.watch_nodes():
        await installation.finish(killer.run(), within=FAILED_WITHIN)
    return killer.kills


async def do_nothing(_kill: LeaderKill) -> None:
    pass


async def halted(installation: Installation) -> bool:
    return (await status(installation)).phase is RolloutPhase.HALTED


async def status(installation: Installation) -> RolloutStatus:
    return msgspec.convert(
        (await installation.read("Rollout", POOL)).get("status", {}), RolloutStatus
    )
