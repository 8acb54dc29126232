"""The page of the fleet's samples, compared with prometheus-client's objects."""

import time
from collections.abc import Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bench.report import BenchReport, ratio
from libs.contracts.telemetry import GpuSample
from services.telemetry.cluster.page import ALL_FIELDS, fleet_page
from services.telemetry.exposition import NodeSamples
from services.telemetry.field import bus_id

TITLE = "250,000 samples of all fields on one page, beside prometheus-client's objects"
SAMPLES: Final = 250_000
GPUS: Final = 8
ROUNDS: Final = 3
VERSION: Final = "580.95.05"
_LABELS: Final = (
    "gpu",
    "UUID",
    "pci_bus_id",
    "device",
    "modelName",
    "hostname",
    "DCGM_FI_DRIVER_VERSION",
)


async def run(report: BenchReport) -> None:
    """Render the same samples in turns."""
    nodes = list(_nodes())
    ours: list[float] = []
    theirs: list[float] = []
    page, reference = b"", b""
    registry = CollectorRegistry()
    registry.register(_Objects(nodes))
    for _ in range(ROUNDS):
        started = time.process_time()
        page = fleet_page(nodes, hostname_label="hostname")
        ours.append(time.process_time() - started)
        started = time.process_time()
        reference = generate_latest(registry)
        theirs.append(time.process_time() - started)
    count = sum(not line.startswith(b"#") for line in page.splitlines())
    expected = sum(not line.startswith(b"#") for line in reference.splitlines())
    assert count == expected, (count, expected)
    note = f"{len(page) / 1e6:.0f} MB, {len(nodes)} nodes, {len(ALL_FIELDS.metrics)} fields"
    report.figure("samples", count, "", note=note)
    report.figure("the page", min(ours) * 1000, "ms")
    report.figure("by prometheus-client", min(theirs) * 1000, "ms")
    report.at_least("as many times as fast", 1 / ratio(ours, theirs), 10, "x")


def _nodes() -> Iterator[NodeSamples]:
    count = -(-SAMPLES // (GPUS * len(ALL_FIELDS.metrics)))
    for number in range(count):
        yield NodeSamples(
            node=f"gpu-{number:05}.example",
            driver_version=VERSION,
            samples=tuple(_sample(number, index) for index in range(GPUS)),
        )


def _sample(node: int, index: int) -> GpuSample:
    """Return a sample in which every value is set."""
    values: dict[str, Any] = {
        name: 0.5 + index / 10 if name.endswith(("_active", "_occupancy", "_w")) else 7 + index
        for name in GpuSample.__struct_fields__
        if name not in ("uuid", "index", "pci", "pod_uid", "model", "instances", "minor")
    }
    return GpuSample(
        uuid=f"GPU-{node:08x}-1234-5678-9abc-{index:012x}",
        index=index,
        pci=f"00000000:{index:02X}:00.0",
        minor=index,
        model="NVIDIA H100 80GB HBM3",
        **values,
    )


class _Objects(Collector):
    """The same metrics as prometheus-client has them."""

    def __init__(self, nodes: list[NodeSamples]) -> None:
        self._nodes = nodes

    def collect(self) -> Iterator[Metric]:
        for metric in ALL_FIELDS.metrics:
            of, name = metric.field.of, metric.field.name
            kind = GaugeMetricFamily if metric.type == "gauge" else CounterMetricFamily
            family = kind(name, metric.help, labels=_LABELS)
            for node in self._nodes:
                for sample in node.samples:
                    value = of(sample)
                    if value is not None:
                        family.add_metric(
                            (
                                str(sample.index),
                                sample.uuid,
                                bus_id(sample.pci),
                                f"nvidia{sample.minor}",
                                sample.model,
                                node.node,
                                VERSION,
                            ),
                            value,
                        )
            yield family
