"""A driver upgrade on real nodes: users' pods with GPUs, a disruption budget, a person's cordon."""

import pytest

from libs.contracts.node import UpgradeState
from libs.testing.image.driver_settings import DriverSettings
from tests.system.upgrade.audit import assert_audit_passes, observe_driverless
from tests.system.upgrade.workload import device_plugins
from tests.system.upgrade.world import NEW, OLD, World

FIRST_RUNS_WITHIN, UPGRADED_WITHIN = 120.0, 180.0


@pytest.mark.timeout(400)
async def test_an_upgrade_completes_and_passes_the_audit(world: World) -> None:
    first, second = world.machines
    # The vendor's container unloads its modules when it ends, unless they are in use: both ways.
    first.set_driver(OLD, DriverSettings(leaves_modules=True))
    await world.apply_policy(OLD)
    async with observe_driverless(world) as observer, device_plugins(world.machines):
        await world.until_all_run(OLD, within=FIRST_RUNS_WITHIN)
        await world.run_service()
        await world.apply_policy(NEW)
        await world.until_states(first.node.name, UpgradeState.POD_DELETION_REQUIRED)
        await world.kubectl.run("cordon", second.node.name)
        await world.until_all_run(NEW, within=UPGRADED_WITHIN)
        assert await world.cordoned() == [second.node.name]
        await assert_audit_passes(world, observer, faults=False)
