"""A release during a sweep, and GPUs that do not respond."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from libs.host.gpus.port import GpuHandle
from libs.host.machine import Offload
from libs.runtime.clock import Clock, SystemClock
from libs.runtime.metrics import Metrics
from libs.testing.simulation import Sim
from services.telemetry.node.sampler import STALE_AFTER, Sampler, Sweep, TelemetryMetrics
from tests.builders.fake_machine import VERSION, FakeDriver, FakeMachine
from tests.support import eventually, in_virtual_time

T = TypeVar("T")


class SlowOffload:
    """Run each call after a delay."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self.seconds = 0.0

    async def run(self, work: Callable[[], T]) -> T:
        await self._sim.clock.sleep(self.seconds)
        return work()


def sampler(
    clock: Clock, root: Path, driver: FakeDriver, offload: Offload, hold: GpuHandle | None = None
) -> Sampler:
    machine = replace(FakeMachine(root).machine, offload=offload, gpus=driver.gpus)
    return Sampler(
        machine=machine,
        hold=hold or GpuHandle(driver.gpus),
        clock=clock,
        metrics=TelemetryMetrics(Metrics(version="0")),
        on_sweep=judge_nothing,
    )


async def judge_nothing(_sweep: Sweep | None, _xids: Mapping[str, tuple[int, ...]]) -> None: ...


class InThreads:
    """Run each call in a thread."""

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)


async def test_after_a_release_a_running_sweep_opens_nothing(tmp_path: Path) -> None:
    driver, opening, may_open = FakeDriver(loaded=VERSION), threading.Event(), threading.Event()
    driver.on_open = lambda: (opening.set(), may_open.wait(20.0))
    hold = GpuHandle(driver.gpus)
    gpu_sampler = sampler(SystemClock(), tmp_path, driver, InThreads(), hold)
    sweep = asyncio.create_task(gpu_sampler.sweep())
    await eventually(opening.is_set)
    release = asyncio.create_task(gpu_sampler.release())
    await eventually(lambda: hold.is_quiesced)
    may_open.set()
    await sweep
    await release
    assert (driver.held, gpu_sampler.current) == (0, None)
    await gpu_sampler.sweep()
    assert (driver.held, gpu_sampler.current) == (0, None)


@in_virtual_time
async def test_the_last_sweep_expires_while_the_gpus_do_not_respond(
    sim: Sim, tmp_path: Path
) -> None:
    driver, offload = FakeDriver(loaded=VERSION), SlowOffload(sim)
    gpu_sampler = sampler(sim.clock, tmp_path, driver, offload)
    await gpu_sampler.sweep()
    offload.seconds = 2 * STALE_AFTER
    sweep = sim.loop.create_task(gpu_sampler.sweep())
    await sim.clock.sleep(STALE_AFTER)
    assert gpu_sampler.current is not None
    assert gpu_sampler.problem == ""
    await sim.clock.sleep(1.0)
    assert gpu_sampler.current is None
    assert gpu_sampler.problem == "the GPUs did not answer for 21 s"
    await sweep
    assert gpu_sampler.current is not None
    assert gpu_sampler.problem == ""
