"""The limit of a wait ends it, whatever rounding does to the time that is left."""

import asyncio

import pytest

from libs.kube.watch import IdleTimeout
from tests.unit.kube.world import SimWorld, in_virtual_time

LIMIT = 60.0


@pytest.mark.parametrize("began", [7.0, 29.726105225516456, 43.21])
def test_a_silent_wait_ends_after_the_limit(began: float) -> None:
    @in_virtual_time(SimWorld)
    async def story(world: SimWorld) -> None:
        async with IdleTimeout(seconds=LIMIT, clock=world.clock) as timeout:
            await timeout.wait(world.clock.sleep(began))
            with pytest.raises(TimeoutError, match="nothing received for 60 s"):
                await timeout.wait(asyncio.Event().wait())
        assert world.clock.monotonic() == pytest.approx(began + LIMIT)

    story()
