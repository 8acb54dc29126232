import random
from collections.abc import Callable

from libs.contracts.telemetry import GpuSample
from libs.testing.env import make_env
from libs.testing.machines.gpu_readings import GpuReadings
from libs.testing.machines.system import PLAIN, gpus
from libs.testing.simulation import Sim, run

CARDS = gpus("n1", 3, PLAIN.gpu)


def readings(sim: Sim, *, seed: int = 1, busy: Callable[[], frozenset[int]]) -> GpuReadings:
    return GpuReadings(
        env=make_env(clock=sim.clock, random=random.Random(seed)),
        busy_gpus=busy,
        broken=lambda gpu: gpu.index == 2,
    )


def hour(seed: int) -> list[list[GpuSample]]:
    """The second GPU works, the third is broken."""

    async def main(sim: Sim) -> list[list[GpuSample]]:
        there = readings(sim, seed=seed, busy=lambda: frozenset({1}))
        found: list[list[GpuSample]] = []
        for _ in range(60):
            await sim.clock.sleep(60.0 / 7)
            found.append([there.of(gpu) for gpu in CARDS])
        return found

    return run(main, seed=1)


def test_idle_and_busy_look_as_they_do() -> None:
    for idle, busy, broken in hour(1):
        assert idle.gpu_utilization == 0
        assert 80 <= (busy.gpu_utilization or 0) <= 100
        assert (idle.temperature_c or 0) < 35 < (busy.temperature_c or 0) < 75
        assert (idle.power_w or 0) < 80
        assert 550 < (busy.power_w or 0) < 700
        used, free = busy.framebuffer_used_mib, busy.framebuffer_free_mib
        assert (used or 0) + (free or 0) == 81559
        assert broken == GpuSample(uuid=CARDS[2].uuid, index=2, pci=CARDS[2].pci)


def test_energy_is_what_was_drawn_and_only_grows() -> None:
    samples = [each[1] for each in hour(1)]
    energies = [each.energy_mj or 0 for each in samples]
    assert energies == sorted(energies)
    seconds = 60 * 60.0 / 7
    assert 550e3 * seconds < energies[-1] < 700e3 * seconds


def test_the_same_seed_reads_the_same_and_another_does_not() -> None:
    assert hour(1) == hour(1)
    assert hour(1) != hour(2)
