"""One GPU of a node fails and returns: all tell the same within five seconds of a sweep.

The agents of telemetry and discovery read a stand-in for NVIDIA's library with the real pynvml.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.contracts.gpus import GpuProblem
from libs.contracts.reports import BEAT_PERIOD
from libs.health.record import XID_END
from libs.testing.nvml import VARIABLE, NotBuilt, Return, StandInGpu, library
from services.discovery.node import agent as discovery
from tests.component import world as worlds
from tests.component.gpus.failing_node import Told, World, measured
from tests.component.gpus.forks import use_forks
from tests.component.processes import AGENTS
from tests.support import Story, played_by

INDEX = 3
OTHERS = set(range(8)) - {INDEX}
SWEEP = 31.0
"""Seconds within which a sweep happens."""
SWEEPS = "sluice_telemetry_sweeps_total"
SOON = 5.0
"""Seconds after a sweep in which all parts tell what it found."""
WELL = Told(
    facts=None,
    is_on_page=True,
    rules=frozenset(),
    device=("ok", ""),
    condition=("True", "GPUsHealthy"),
    wait="paused",
)


BESIDE_A_FAILED_ONE = Told(
    facts=None,
    is_on_page=True,
    rules=frozenset(),
    device=("ok", ""),
    condition=("False", "GPUFailed"),
    wait="gpu-failed",
)


def play(story: Story[World]) -> None:
    worlds.run_world(story, World)


in_world = played_by(play)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        library()
    except NotBuilt as error:
        pytest.skip(str(error))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gpus"))
    use_forks(monkeypatch)


def failed(
    *rules: str, reason: str, facts: GpuProblem | None = None, is_on_page: bool = False
) -> Told:
    return Told(
        facts=facts,
        is_on_page=is_on_page,
        rules=frozenset(rules),
        device=("failed", reason),
        condition=("False", "GPUFailed"),
        wait="gpu-failed",
    )


def hang(gpu: StandInGpu) -> None:
    gpu.hang()


def lose(gpu: StandInGpu) -> None:
    gpu.health.condition = Return.GPU_IS_LOST


def fall_off_the_bus(gpu: StandInGpu) -> None:
    gpu.lose()


def fail_a_remapping(gpu: StandInGpu) -> None:
    gpu.health.remap_failure = 1


FAILURES = [
    pytest.param(hang, failed("unusable", reason="Unusable", facts=GpuProblem.HUNG), id="hung"),
    pytest.param(lose, failed("unusable", reason="Unusable", facts=GpuProblem.LOST), id="lost"),
    pytest.param(
        fall_off_the_bus,
        failed("unusable", "xid", reason="Unusable", facts=GpuProblem.LOST),
        id="xid 79",
    ),
    pytest.param(
        fail_a_remapping,
        failed("row-remap", reason="RowRemap", is_on_page=True),
        id="row remapping",
    ),
]


@pytest.mark.dear("all who tell of a GPU, with agents that look each second")
@pytest.mark.parametrize(("fail", "told"), FAILURES)
@in_world
async def test_a_gpu_fails_for_a_minute_and_all_tell_the_same_story(
    world: World, fail: Callable[[StandInGpu], None], told: Told
) -> None:
    async with world.waiting():
        await world.until_told(INDEX, WELL, within=60)
        world.batches.clear()
        pages = asyncio.create_task(world.read_pages(OTHERS))
        waiting = world.telemetry.value(SWEEPS, outcome="waiting")
        gpu = world.stand_in.gpus[INDEX]
        fail(gpu)
        if "xid" in told.rules:
            world.settle()

        async def is_judged() -> bool:
            return world.verdict(INDEX) == "failed"

        await world.until(is_judged, within=SWEEP)
        await world.until_told(INDEX, told, within=SOON)
        assert await world.gpu_events() == ["GPUFailed"]
        assert await world.told(0) == BESIDE_A_FAILED_ONE
        await world.sleep(60)
        await world.until_told(INDEX, told, within=0)

        gpu.reset()
        gpu.health.remap_failure = 0
        if told.facts is GpuProblem.HUNG:
            world.settle()

        async def is_healed() -> bool:
            return world.verdict(INDEX) == "ok"

        await world.until(is_healed, within=XID_END + 2 * SWEEP)
        await world.until_told(INDEX, WELL, within=SOON)
        assert await world.gpu_events() == ["GPUFailed", "GPUHealthy"]
        pages.cancel()
        assert world.read_in_full > 60
        assert world.read_in_part == []
        assert world.telemetry.value(SWEEPS, outcome="waiting") == waiting
        assert all(measured(batch) >= OTHERS for batch in world.batches)
        assert all(len(batch.gpus) == 8 for batch in world.batches)


@pytest.mark.dear("five minutes of all agents of a node, whose NVML processes end and start again")
@in_world
async def test_all_calls_hang_for_five_minutes_and_all_is_back_by_itself(world: World) -> None:
    async with world.waiting():
        await world.until_told(INDEX, WELL, within=60)
        beats: list[str] = []
        world.bus.add_tracer(
            lambda record: beats.append(record.subject) if ".beat." in record.subject else None
        )
        world.stand_in.machine.one_lock = 1
        world.stand_in.gpus[INDEX].hang()
        world.hold_back(stuck=True)

        async def are_judged() -> bool:
            return {world.verdict(index) for index in range(8)} == {"failed"}

        await world.until(are_judged, within=SWEEP)
        told = failed("unusable", reason="Unusable")
        for index in range(8):
            await world.until_told(index, told, within=SOON, but_facts=True)

        async def is_named() -> bool:
            return world.nvml_problem() in (GpuProblem.DRIVER_HUNG, GpuProblem.NO_ANSWER)

        # The first scan may find that only some GPUs hang.
        await world.until(is_named, within=2 * discovery.GPU_INTERVAL)
        assert (await world.gpu_events()).count("GPUFailed") == 8
        before = len(beats)
        await world.sleep(300)
        for index in range(8):
            await world.until_told(index, told, within=0, but_facts=True)
        assert world.nvml_problem() is GpuProblem.DRIVER_HUNG
        assert len(beats) - before >= len(AGENTS) * (300 / BEAT_PERIOD - 1)
        assert len(world.readers) <= 4

        world.stand_in.gpus[INDEX].release()
        world.stand_in.machine.one_lock = 0
        world.hold_back(stuck=False)

        async def are_healed() -> bool:
            return {world.verdict(index) for index in range(8)} == {"ok"}

        await world.until(are_healed, within=XID_END + 2 * SWEEP)
        for index in range(8):
            await world.until_told(index, WELL, within=SOON, but_facts=True)
        await world.sleep(discovery.INTERVAL)
        for index in range(8):
            await world.until_told(index, WELL, within=0)
        assert world.nvml_problem() is None
        assert measured(world.batches[-1]) == set(range(8))
