"""Metrics of the fleet: the same families for nodes and for pools, in base units.

A node's series carry its name alone, so that they continue when the node changes its pool: join
them with `sluice_node_info`.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from libs.bus.telemetry import TelemetryCollector
from services.telemetry.cluster.fleet import FleetTelemetry, NodeTelemetry, PoolTelemetry
from services.telemetry.cluster.totals import GpuTotals


class _Family(msgspec.Struct, frozen=True):
    """A metric of the totals, under one name for nodes and another for pools."""

    name: str
    help: str
    of: Callable[[GpuTotals], float | None]


_FAMILIES: Final = (
    _Family("gpus", "number of GPUs.", lambda totals: totals.gpus),
    _Family(
        "gpus_mute",
        "number of GPUs of which nothing can be read.",
        lambda totals: totals.mute,
    ),
    _Family(
        "gpu_utilization_ratio",
        "mean utilization of the GPUs, from 0 to 1.",
        lambda totals: totals.utilization,
    ),
    _Family(
        "gpu_memory_used_bytes",
        "memory of the GPUs that is in use.",
        lambda totals: totals.memory_used,
    ),
    _Family(
        "gpu_memory_bytes",
        "memory of the GPUs: used, free and reserved.",
        lambda totals: totals.memory,
    ),
    _Family("gpu_power_watts", "power draw of all GPUs.", lambda totals: totals.power),
    _Family(
        "gpu_temperature_celsius", "temperature of the hottest GPU.", lambda totals: totals.hottest
    ),
)
_NODE, _POOL = "Of a node: ", "Of a pool: "


class FleetCollector(Collector):
    """Builds the metrics at each scrape, so that silent nodes have none."""

    def __init__(self, fleet: FleetTelemetry, batches: TelemetryCollector) -> None:
        self._fleet = fleet
        self._batches = batches

    def collect(self) -> Iterator[Metric]:
        nodes = list(self._fleet.nodes())
        pools = self._fleet.pools(nodes)
        yield from _node_metrics(nodes)
        yield from _pool_metrics(dict(pools))
        yield from self._batch_metrics()

    def _batch_metrics(self) -> Iterator[Metric]:
        batches, unknown = self._batches, self._fleet.unknown_batches
        family = CounterMetricFamily(
            "sluice_telemetry_batches",
            "Received batches by outcome: taken; late (a later one had arrived); unreadable;"
            " foreign (from another node than the one they name); stranger (no such Node).",
            labels=["outcome"],
        )
        family.add_metric(["taken"], batches.received - unknown)
        family.add_metric(["late"], batches.late)
        family.add_metric(["unreadable"], batches.malformed)
        family.add_metric(["foreign"], batches.foreign)
        family.add_metric(["stranger"], unknown)
        yield family
        yield CounterMetricFamily(
            "sluice_telemetry_missing_batches",
            "Batches that nodes sent and that never arrived, by their sequence numbers.",
            value=batches.missing,
        )
        yield CounterMetricFamily(
            "sluice_telemetry_refused_samples",
            "Samples of GPUs, and versions of drivers, that were left out because they cannot be"
            " true.",
            value=self._fleet.refused_samples,
        )


def _node_metrics(nodes: list[NodeTelemetry]) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "sluice_node_info",
        "Of a node that sends batches: its pool and driver, empty if unknown; always 1.",
        labels=["node", "pool", "driver_version"],
    )
    age = GaugeMetricFamily(
        "sluice_node_telemetry_age_seconds",
        f"{_NODE}time since its last batch arrived.",
        labels=["node"],
    )
    for node in nodes:
        info.add_metric([node.name, node.pool, node.driver_version], 1)
        age.add_metric([node.name], node.age)
    yield from (info, age)
    yield from _totals_metrics("node", _NODE, {node.name: node.totals for node in nodes})
    yield _xid_metric("node", _NODE, {node.name: node.xids for node in nodes})


def _pool_metrics(pools: dict[str, PoolTelemetry]) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "sluice_pool_nodes",
        f"{_POOL}nodes with a telemetry agent, by state: measured; waiting (for a driver, or"
        " quiesced); silent (no batches).",
        labels=["pool", "state"],
    )
    for name, pool in pools.items():
        states.add_metric([name, "measured"], pool.measured)
        states.add_metric([name, "waiting"], pool.waiting)
        states.add_metric([name, "silent"], pool.silent)
    yield states
    yield from _totals_metrics("pool", _POOL, {name: pool.totals for name, pool in pools.items()})
    yield _xid_metric("pool", _POOL, {name: pool.xids for name, pool in pools.items()})


def _totals_metrics(kind: str, prefix: str, totals: dict[str, GpuTotals]) -> Iterator[Metric]:
    """Yield the families of totals; a value that was not measured has no series."""
    for family in _FAMILIES:
        gauge = GaugeMetricFamily(
            f"sluice_{kind}_{family.name}", prefix + family.help, labels=[kind]
        )
        for name, each in totals.items():
            value = family.of(each)
            if value is not None:
                gauge.add_metric([name], value)
        yield gauge


def _xid_metric(kind: str, prefix: str, counts: dict[str, int]) -> Metric:
    counter = CounterMetricFamily(
        f"sluice_{kind}_gpu_xid_errors",
        f"{prefix}XID errors that the driver reported for its GPUs.",
        labels=[kind],
    )
    for name, count in counts.items():
        counter.add_metric([name], count)
    return counter
