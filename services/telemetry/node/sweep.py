"""One sweep over all GPUs of a machine, as data."""

from collections.abc import Mapping

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """What all GPUs did at one moment."""

    driver_version: str
    gpus: tuple[Gpu, ...]
    samples: tuple[GpuSample, ...]


class Errors:
    """The XIDs of this process's life: each is counted when it is told, also one that repeats."""

    def __init__(self) -> None:
        self.total = 0
        self._last: dict[str, int] = {}

    def take(self, told: Mapping[str, tuple[int, ...]]) -> None:
        """What the driver told since the last time."""
        for uuid, codes in told.items():
            self.total += len(codes)
            if codes:
                self._last[uuid] = codes[-1]

    def on(self, samples: tuple[GpuSample, ...]) -> tuple[GpuSample, ...]:
        """The samples, each with the last error of its GPU, if it had one."""
        return tuple(
            msgspec.structs.replace(one, xid=self._last[one.uuid])
            if one.uuid in self._last
            else one
            for one in samples
        )
