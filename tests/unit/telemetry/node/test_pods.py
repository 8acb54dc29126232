"""The agent follows the kubelet's list, and does without it."""

import asyncio
from contextlib import suppress

from structlog.testing import capture_logs

from libs.host.machine import InlineOffload
from libs.host.podresources.assignments import DeviceList, DeviceUse, PodContainer, PodsByGpu
from libs.host.podresources.client import KubeletUnavailable
from libs.testing import simulation
from libs.testing.simulation import Sim
from services.telemetry.node.pods import KEPT, PERIOD, PodFollower
from tests.builders.fake_machine import gpu
from tests.support import Story, played_by

WEB = PodContainer("default", "web", "cuda")
GPU = gpu(0)
NAMED: PodsByGpu = {(GPU.uuid, None): (WEB,)}
ANSWER = DeviceList((DeviceUse(GPU.uuid, WEB),))


class World:
    """A kubelet, and an agent that follows it."""

    def __init__(self, sim: Sim) -> None:
        self.clock = sim.clock
        self.asked = 0
        self.answer: DeviceList | str = ANSWER
        self.follower = PodFollower(self._list, offload=InlineOffload(), clock=sim.clock)

    @property
    def pods(self) -> PodsByGpu:
        return self.follower.pods([GPU])

    def _list(self) -> DeviceList:
        self.asked += 1
        if isinstance(self.answer, str):
            raise KubeletUnavailable(self.answer)
        return self.answer


def _play(story: Story[World]) -> None:
    async def main(sim: Sim) -> None:
        world = World(sim)
        running = asyncio.create_task(world.follower.run())
        await story(world)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    simulation.run(main, seed=0)


in_world = played_by(_play)


@in_world
async def test_the_kubelet_is_asked_at_an_interval(world: World) -> None:
    assert world.pods == {}
    await world.clock.sleep(9.5 * PERIOD)
    assert world.asked == 10
    assert world.pods == NAMED
    world.answer = DeviceList()
    await world.clock.sleep(PERIOD)
    assert world.pods == {}


@in_world
async def test_the_last_answer_counts_for_a_while(world: World) -> None:
    await world.clock.sleep(1.0)
    world.answer = "the kubelet did not answer"
    with capture_logs() as logs:
        await world.clock.sleep(KEPT - 2.0)
        assert world.pods == NAMED
        await world.clock.sleep(2.0)
        assert world.pods == {}
        await world.clock.sleep(3600.0)
        assert [each["problem"] for each in logs] == ["the kubelet did not answer"]
        world.answer = ANSWER
        await world.clock.sleep(PERIOD)
    assert world.pods == NAMED
    assert [each["log_level"] for each in logs] == ["warning", "info"]


@in_world
async def test_refused_names_are_logged_once(world: World) -> None:
    world.answer = DeviceList(ANSWER.uses, refused=2)
    with capture_logs() as logs:
        await world.clock.sleep(100 * PERIOD)
    assert world.pods == NAMED
    assert [each["containers"] for each in logs] == [2]
