"""Looks at the GPUs of one machine, again and again, and lets go of them when it is told to.

What it saw last is shown only while it can be true. Who reads it is not known here.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from libs.host.gpus.hold import Hold
from libs.host.gpus.port import Unavailable
from libs.host.machine import Machine
from libs.runtime.clock import Clock
from services.telemetry.node.meters import TelemetryMeters
from services.telemetry.node.sweep import Errors, Sweep

EVERY: Final = 30.0
"""Seconds between two sweeps, as dcgm-exporter has it."""
STALE: Final = 3 * EVERY
"""Seconds after which what was seen is shown no more."""


class _Look(msgspec.Struct, frozen=True):
    sweep: Sweep | None = None
    errors: Mapping[str, tuple[int, ...]] = {}
    """The driver tells them once: they count even where the sweep failed after them."""


class Sampler:
    """One machine's GPUs."""

    def __init__(
        self, *, machine: Machine, hold: Hold, clock: Clock, meters: TelemetryMeters
    ) -> None:
        self._machine = machine
        self._hold = hold
        self._clock = clock
        self._meters = meters
        self._errors = Errors()
        # Whoever lets go waits for a sweep under way, which else would take hold again.
        self._alone = asyncio.Lock()
        self._sweep: Sweep | None = None
        self._looked = clock.monotonic()

    @property
    def current(self) -> Sweep | None:
        """What the GPUs do; None: that is not known now."""
        return None if self._late else self._sweep

    @property
    def xids(self) -> int:
        """Errors of all GPUs in this process's life."""
        return self._errors.total

    @property
    def trouble(self) -> str:
        """Why the GPUs are not measured, in words; empty if they are."""
        if late := self._late:
            return f"the GPUs did not answer for {late:.0f} s"
        return self._hold.why or ("" if self._sweep else "the GPUs are not looked at yet")

    @property
    def _late(self) -> float:
        """Seconds since the last look ended, where those are too many."""
        silence = self._clock.monotonic() - self._looked
        return silence if silence > STALE else 0.0

    async def look(self) -> None:
        """One sweep, if there is anybody to be asked."""
        async with self._alone:
            found = await self._machine.access.do(self._look)
            self._errors.take(found.errors)
            self._meters.erred(found.errors)
            self._sweep = found.sweep and msgspec.structs.replace(
                found.sweep, samples=self._errors.on(found.sweep.samples)
            )
            self._looked = self._clock.monotonic()
        self._meters.swept(measured=found.sweep is not None)

    async def let_go(self) -> None:
        """Hold no GPU from now on, and show nothing but why."""
        async with self._alone:
            await self._machine.access.do(self._hold.let_go)
            self._sweep = None
        await self.look()

    async def resume(self) -> None:
        """The GPUs may be held again: look at them."""
        self._hold.resume()
        await self.look()

    def _look(self) -> _Look:
        library = self._hold.take()
        if library is None:
            return _Look()
        gpus = self._hold.gpus
        errors: Mapping[str, tuple[int, ...]] = {}
        try:
            errors = gpus.errors()
            sweep = Sweep(
                driver_version=library.driver_version,
                gpus=gpus.describe(),
                samples=gpus.sample(),
            )
        except Unavailable as error:
            self._hold.lost(error)
            return _Look(errors=errors)
        return _Look(sweep, errors)
