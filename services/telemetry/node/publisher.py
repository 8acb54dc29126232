"""Sample the GPUs at an interval, and send batches less often."""

from typing import Final

from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.bus.telemetry import TelemetrySender
from libs.runtime.clock import Clock
from services.gpu_holders import let_go
from services.telemetry.node.sampler import Sampler, Sweep, TelemetryMetrics

RETRY_INTERVAL: Final = 5.0
"""Seconds until the next sweep after one that measured nothing: it may have started a process."""
CHANGE_INTERVAL: Final = 5.0
"""Seconds after which a batch may follow another one because something changed."""


class SweepPublisher:
    """Sweeps once per `sample_interval`, and sends the last sweep once per `report_interval`.

    An XID, or a GPU that begins or ceases to answer, is sent within `CHANGE_INTERVAL`.
    """

    def __init__(
        self,
        *,
        sampler: Sampler,
        sender: TelemetrySender,
        clock: Clock,
        metrics: TelemetryMetrics,
        sample_interval: float,
        report_interval: float,
    ) -> None:
        self._sampler = sampler
        self._sender = sender
        self._clock = clock
        self._metrics = metrics
        self._sample_interval = sample_interval
        self._report_interval = report_interval
        self._sent_at: float | None = None
        self._sent_state: object = None

    async def run(self) -> None:
        while True:
            began = self._clock.monotonic()
            await self._sampler.sweep()
            if self._is_due():
                await self._send()
            took = self._clock.monotonic() - began
            await self._clock.sleep(max(0.0, self._interval - took))

    async def quiesce(self, _op: Op) -> OpDone | OpFailed:
        """Release the GPUs, and send an empty batch at once."""
        return await let_go(self._sampler.release(), self._send)

    async def idle(self, _op: Op) -> OpDone:
        """Sample again, and send the sweep at once."""
        await self._sampler.resume()
        await self._send()
        return OpDone()

    @property
    def _interval(self) -> float:
        """Seconds between sweeps: longer while none measures, as each may start NVML's process."""
        is_measured = self._sampler.current is not None
        return self._sample_interval if is_measured else max(self._sample_interval, RETRY_INTERVAL)

    def _is_due(self) -> bool:
        """Whether to send: the interval is over, or something changed that is waited for."""
        if self._sent_at is None:
            return True
        # The nearest sweep, not the next one.
        age = self._clock.monotonic() - self._sent_at + self._sample_interval / 2
        if age >= self._report_interval:
            return True
        return age >= CHANGE_INTERVAL and self._state() != self._sent_state

    def _state(self) -> object:
        """Return what is sent soon after it changed."""
        sweep = self._sampler.current
        return (self._sampler.xids, sweep and _answering(sweep))

    async def _send(self) -> None:
        sweep, unsent = self._sampler.current, self._sender.unsent
        self._sent_at, self._sent_state = self._clock.monotonic(), self._state()
        await self._sender.send(
            driver_version=sweep.driver_version if sweep else "",
            gpus=list(sweep.samples) if sweep else [],
            xids=self._sampler.xids,
        )
        if self._sender.unsent > unsent:
            self._metrics.count_unsent()


def _answering(sweep: Sweep) -> object:
    """Return the driver, and which GPUs have a temperature."""
    gpus = frozenset((each.uuid, each.temperature_c is not None) for each in sweep.samples)
    return sweep.driver_version, gpus
