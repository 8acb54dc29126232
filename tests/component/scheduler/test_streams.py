"""Streams that are deleted while the scheduler runs."""

import pytest

from libs.bus.port import BusUnavailable
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import COMMANDS, STATE, STREAMS, Stream
from tests.component.scheduler.world import NEW, STATES, World, in_world


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


@pytest.mark.parametrize("state", STATES[1:-1])
@in_world
async def test_a_node_in_flight_goes_on_when_commands_are_lost(world: World, state: str) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.start_job("train", "a")
    await world.apply_policy(NEW)
    await world.until_state("a", state)
    world.bus.lose_stream(COMMANDS)
    await world.wait_until_done("a", before=target, within=300)


@pytest.mark.parametrize("seconds", [0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 4.0])
@in_world
async def test_commands_may_be_lost_at_any_moment(world: World, seconds: float) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.apply_policy(NEW)
    await world.until_state("a", "pod-deletion-required")
    await world.sleep(seconds)
    world.bus.lose_stream(COMMANDS)
    await world.wait_until_done("a", before=target, within=300)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("state", STATES[1:-1])
@in_world
async def test_a_node_in_flight_goes_on_when_reports_are_lost(
    world: World, state: str, seconds: float
) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.apply_policy(NEW)
    await world.until_state("a", state)
    await world.sleep(seconds)
    world.bus.lose_stream(STATE)
    await world.wait_until_done("a", before=target, within=60)
