"""A driver that loads nowhere, on a real Kubernetes control plane: the scheduler is killed in
`upgrade-failed`, the next one halts the rollout, and a person lets it go on.
"""

import msgspec
import pytest

from demo.person import POOL
from demo.places import NAMESPACE
from libs.contracts.node import DRIVER_LABEL, UpgradeState
from libs.contracts.rollout import Phase, RolloutStatus
from libs.kube.resources import DAEMON_SETS
from libs.testing.realkube.binaries import Binaries
from tests.component.real_upgrade.judging import kept_all_promises, witnessed
from tests.component.real_upgrade.people import NEW, People
from tests.component.real_upgrade.reaping import Death, Reaper
from tests.component.real_upgrade.site import Site, site

FAILED_WITHIN, MENDED_WITHIN = 240.0, 200.0


@pytest.mark.timeout(800)
async def test_a_failure_outlives_whoever_led_and_a_person_ends_the_halt(
    binaries: Binaries,
) -> None:
    async with site(binaries, ["node-1"]) as here:
        people = People(here)
        await here.install()
        await here.start()
        async with witnessed(here) as witness:
            await people.want(NEW)
            # A machine takes seconds before it comes to load what was rendered just now.
            await here.until(lambda: spoilt(here), within=MENDED_WITHIN)
            deaths = await failed(here)
            await here.until(lambda: halted(here), within=MENDED_WITHIN)
            (record,) = (await status(here)).targets.values()

            here.up.places.bad_drivers.write_text("")
            await people.accept(1, target=(await status(here)).target)
            await here.until(lambda: people.all_run(NEW), within=MENDED_WITHIN)
            after = await status(here)
        await kept_all_promises(here, witness)
        assert [death.state for death in deaths] == [UpgradeState.UPGRADE_FAILED]
        assert len(record.failed) == 1
        # What failed once has failed: a retry that succeeds takes nothing back.
        assert after.targets[after.target].failed == record.failed


async def spoilt(here: Site) -> bool:
    """The driver that is rendered now loads on no machine."""
    drivers = (await here.kube.page(DAEMON_SETS, namespace=NAMESPACE)).items
    labels = [label for one in drivers if (label := one.metadata.labels.get(DRIVER_LABEL))]
    here.up.places.bad_drivers.write_text("\n".join(labels))
    return bool(labels)


async def failed(here: Site) -> list[Death]:
    """The node fails, and who led dies of it."""
    reaper = Reaper(here, [UpgradeState.UPGRADE_FAILED], between=nothing)
    async with reaper.watching():
        await here.finish(reaper.run(), within=FAILED_WITHIN)
    return reaper.deaths


async def nothing(_death: Death) -> None:
    """Nobody does anything meanwhile."""


async def halted(here: Site) -> bool:
    return (await status(here)).phase is Phase.HALTED


async def status(here: Site) -> RolloutStatus:
    return msgspec.convert((await here.read("Rollout", POOL)).get("status", {}), RolloutStatus)
