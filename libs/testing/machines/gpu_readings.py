"""What a simulated machine's GPUs would show: idle or at work, and each a little different.

A reading follows from the time, from what computes, and from what it was told is broken.
"""

import math
from collections.abc import Callable

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample
from libs.runtime.env import Env

_WAVE = 60.0
"""Seconds of one rise and fall of a load."""


class GpuReadings:
    """Of all GPUs of one machine; `computing` says on which of them something computes."""

    def __init__(
        self,
        *,
        env: Env,
        busy_gpus: Callable[[], frozenset[int]],
        broken: Callable[[Gpu], bool],
    ) -> None:
        self._clock = env.clock
        self._own = [env.random.random() for _ in range(32)]
        self._computing = busy_gpus
        self._broken = broken
        self._since = env.clock.monotonic()
        self._energy: dict[str, tuple[float, float]] = {}
        """By UUID: when it was last counted, and millijoules until then."""

    def of(self, gpu: Gpu) -> GpuSample:
        """Now; one that is broken tells nothing."""
        if self._broken(gpu):
            return GpuSample(uuid=gpu.uuid, index=gpu.index, pci=gpu.pci)
        load, own = self._load(gpu), self._own[gpu.index % len(self._own)]
        power = 70.0 + 8.0 * own + 600.0 * load
        used = round(gpu.memory_mib * (0.9 if load else 0.0)) + 600
        return GpuSample(
            uuid=gpu.uuid,
            index=gpu.index,
            pci=gpu.pci,
            sm_clock_mhz=1980 if load else 345,
            memory_clock_mhz=2619,
            temperature_c=round(27 + 5 * own + 38 * load),
            memory_temperature_c=round(32 + 5 * own + 45 * load),
            power_w=round(power, 3),
            energy_mj=self._counted(gpu, power),
            pcie_replays=0,
            gpu_utilization=round(100 * load),
            memory_utilization=round(60 * load),
            framebuffer_used_mib=min(used, gpu.memory_mib),
            framebuffer_free_mib=max(0, gpu.memory_mib - used),
            ecc_volatile_uncorrected=0,
        )

    def _load(self, gpu: Gpu) -> float:
        if gpu.index not in self._computing():
            return 0.0
        own = self._own[gpu.index % len(self._own)]
        turn = self._clock.monotonic() / _WAVE + own
        return 0.9 + 0.08 * math.sin(2 * math.pi * turn)

    def _counted(self, gpu: Gpu, power: float) -> int:
        now = self._clock.monotonic()
        last, energy = self._energy.get(gpu.uuid, (self._since, 0.0))
        energy += (now - last) * power * 1000.0
        self._energy[gpu.uuid] = (now, energy)
        return int(energy)
