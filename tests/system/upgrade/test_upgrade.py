"""A driver upgrade on real nodes."""

import pytest

from tests.system.upgrade.world import NEW, OLD, World


@pytest.mark.timeout(400)
async def test_an_upgrade_completes(world: World) -> None:
    await world.apply_policy(OLD)
    await world.until_all_run(OLD, within=120.0)
    await world.apply_policy(NEW)
    await world.until_all_run(NEW, within=150.0)
