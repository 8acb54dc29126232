"""Metrics of the agent itself; those under dcgm-exporter's names are in `fields`."""

from collections.abc import Mapping

from prometheus_client import Counter

from libs.runtime.metrics import Metrics


class TelemetryMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._sweeps = metrics.counter(
            "sluice_telemetry_sweeps",
            "Sweeps over the GPUs of this node: measured, or waiting because NVML cannot be used.",
            outcome=("measured", "waiting"),
        )
        self._xids = Counter(
            "sluice_telemetry_xid_errors",
            "XID errors that the driver reported, by GPU and number, including repeated ones.",
            ["uuid", "xid"],
            registry=metrics.registry,
        )
        self._unsent = metrics.counter(
            "sluice_telemetry_unsent_batches",
            "Batches that were not sent because the bus was unavailable.",
        )

    def count_sweep(self, *, measured: bool) -> None:
        self._sweeps.labels("measured" if measured else "waiting").inc()

    def count_xids(self, errors: Mapping[str, tuple[int, ...]]) -> None:
        """Count XIDs by GPU UUID."""
        for uuid, codes in errors.items():
            for code in codes:
                self._xids.labels(uuid, str(code)).inc()

    def count_unsent(self) -> None:
        self._unsent.inc()
