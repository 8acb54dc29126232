"""A driver that loads nowhere, on a real Kubernetes control plane: the scheduler is killed in
`upgrade-failed`, the next one halts the rollout, and a person lets it go on.
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

FAILED_WITHIN, MENDED_WITHIN = 240.0, 200.0


@pytest.mark.timeout(800)
async def test_a_failure_outlives_whoever_led_and_a_person_ends_the_halt(
    binaries: Binaries,
) -> None:
    async with provision(binaries, ["node-1"]) as here:
        people = UpgradeAdmin(here)
        await here.install()
        await here.start()
        async with observe_driverless(here) as witness:
            await people.apply_policy(NEW)
            # A machine takes seconds before it comes to load what was rendered just now.
            await here.until(lambda: break_driver(here), within=MENDED_WITHIN)
            deaths = await wait_for_failure(here)
            await here.until(lambda: halted(here), within=MENDED_WITHIN)
            (record,) = (await status(here)).targets.values()

            here.up.paths.bad_drivers.write_text("")
            await people.accept_failures(1, target=(await status(here)).target)
            await here.until(lambda: people.all_run(NEW), within=MENDED_WITHIN)
            after = await status(here)
        await assert_audit_passes(here, witness)
        assert [death.state for death in deaths] == [UpgradeState.UPGRADE_FAILED]
        assert len(record.failed) == 1
        # What failed once has failed: a retry that succeeds takes nothing back.
        assert after.targets[after.target].failed == record.failed


async def break_driver(here: Installation) -> bool:
    """The driver that is rendered now loads on no machine."""
    drivers = (await here.kube.list_page(DAEMON_SETS, namespace=NAMESPACE)).items
    labels = [label for one in drivers if (label := one.metadata.labels.get(DRIVER_LABEL))]
    here.up.paths.bad_drivers.write_text("\n".join(labels))
    return bool(labels)


async def wait_for_failure(here: Installation) -> list[LeaderKill]:
    """The node fails, and who led dies of it."""
    reaper = LeaderKiller(here, [UpgradeState.UPGRADE_FAILED], between=nothing)
    async with reaper.watch_nodes():
        await here.finish(reaper.run(), within=FAILED_WITHIN)
    return reaper.kills


async def nothing(_death: LeaderKill) -> None:
    """Nobody does anything meanwhile."""


async def halted(here: Installation) -> bool:
    return (await status(here)).phase is RolloutPhase.HALTED


async def status(here: Installation) -> RolloutStatus:
    return msgspec.convert((await here.read("Rollout", POOL)).get("status", {}), RolloutStatus)
