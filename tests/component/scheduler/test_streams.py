"""Streams that are deleted while the scheduler runs."""

import pytest

from libs.bus.port import BusUnavailable
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import STREAMS, Stream
from tests.component.scheduler.world import World, in_world


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
@in_world
async def test_a_deleted_stream_is_created_again_within_a_minute(
    world: World, stream: Stream
) -> None:
    await world.complete_first_rollout("a")
    await world.sleep(60)
    world.bus.lose_stream(stream)
    await world.sleep(60)
    reader = world.bus.connect(Identity(writer=Writer.SCHEDULER))
    try:
        await reader.last(stream, stream.subjects[0].replace(">", "default.a.driver.x"))
    except BusUnavailable as error:
        pytest.fail(str(error))
    finally:
        reader.kill()
