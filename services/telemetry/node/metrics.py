"""What the agent measures of itself, on its process's page: dashboards' names are elsewhere."""

from collections.abc import Mapping

from prometheus_client import Counter

from libs.runtime.metrics import Metrics


class TelemetryMetrics:
    """Those of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._sweeps = metrics.counter(
            "sluice_telemetry_sweeps",
            "Looks at the GPUs of this node: measured, or waiting because they cannot be asked.",
            outcome=("measured", "waiting"),
        )
        self._xids = Counter(
            "sluice_telemetry_xid_errors",
            "Errors that the driver told, by GPU and number; each is counted once, also repeats.",
            ["uuid", "xid"],
            registry=metrics.registry,
        )
        self._unsent = metrics.counter(
            "sluice_telemetry_unsent_batches",
            "Batches that were never sent, because the bus was away.",
        )

    def count_sweep(self, *, measured: bool) -> None:
        """One look ended."""
        self._sweeps.labels("measured" if measured else "waiting").inc()

    def count_xids(self, told: Mapping[str, tuple[int, ...]]) -> None:
        """The driver told errors, by UUID."""
        for uuid, codes in told.items():
            for code in codes:
                self._xids.labels(uuid, str(code)).inc()

    def count_unsent(self) -> None:
        """One batch is lost."""
        self._unsent.inc()
