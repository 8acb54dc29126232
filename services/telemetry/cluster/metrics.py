"""The fleet on a page: one family of metrics per question, for nodes and for pools alike.

Units are base units. A node's series have its name alone, so that they stay the same when it
changes its pool: join them with `sluice_node_info`.
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
    name: str
    help: str
    of: Callable[[GpuTotals], float | None]


_FAMILIES: Final = (
    _Family("gpus", "GPUs that are there.", lambda many: many.gpus),
    _Family(
        "gpus_mute", "GPUs that are there and of which nothing can be read.", lambda many: many.mute
    ),
    _Family(
        "gpu_utilization_ratio",
        "mean utilization of the GPUs, from 0 to 1.",
        lambda many: many.utilization,
    ),
    _Family(
        "gpu_memory_used_bytes", "memory of the GPUs that is in use.", lambda many: many.memory_used
    ),
    _Family(
        "gpu_memory_bytes", "memory of the GPUs: used, free and reserved.", lambda many: many.memory
    ),
    _Family("gpu_power_watts", "power that the GPUs draw together.", lambda many: many.power),
    _Family(
        "gpu_temperature_celsius", "temperature of the hottest GPU.", lambda many: many.hottest
    ),
)
_NODE, _POOL = "Of a node: ", "Of a pool: "


class FleetCollector(Collector):
    """Made anew whenever somebody looks: what is silent is gone."""

    def __init__(self, fleet: FleetTelemetry, fan_in: TelemetryCollector) -> None:
        self._fleet = fleet
        self._fan_in = fan_in

    def collect(self) -> Iterator[Metric]:
        """All of it."""
        nodes = list(self._fleet.nodes())
        pools = self._fleet.pools(nodes)
        yield from _of_nodes(nodes)
        yield from _of_pools(dict(pools))
        yield from self._of_batches()

    def _of_batches(self) -> Iterator[Metric]:
        fan_in, strangers = self._fan_in, self._fleet.unknown_batches
        batches = CounterMetricFamily(
            "sluice_telemetry_batches",
            "Batches that came, by what became of them: taken; late, because a later one was"
            " there; unreadable; foreign, for they named another node than who sent them; of"
            " strangers, nodes that there are not.",
            labels=["outcome"],
        )
        counts = {
            "taken": fan_in.received - strangers,
            "late": fan_in.late,
            "unreadable": fan_in.malformed,
            "foreign": fan_in.foreign,
            "stranger": strangers,
        }
        for outcome, count in counts.items():
            batches.add_metric([outcome], count)
        yield batches
        yield CounterMetricFamily(
            "sluice_telemetry_missing_batches",
            "Batches that were numbered by their senders and never came.",
            value=fan_in.missing,
        )


def _of_nodes(nodes: list[NodeTelemetry]) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "sluice_node_info",
        "Of a node that is heard: its pool and its driver, empty where not known; always 1.",
        labels=["node", "pool", "driver_version"],
    )
    age = GaugeMetricFamily(
        "sluice_node_telemetry_age_seconds",
        f"{_NODE}time since its last batch came.",
        labels=["node"],
    )
    for node in nodes:
        info.add_metric([node.name, node.pool, node.driver_version], 1)
        age.add_metric([node.name], node.age)
    yield from (info, age)
    yield from _numbers("node", _NODE, {one.name: one.totals for one in nodes})
    yield _errors("node", _NODE, {one.name: one.xids for one in nodes})


def _of_pools(pools: dict[str, PoolTelemetry]) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "sluice_pool_nodes",
        f"{_POOL}nodes whose GPUs should be measured: measured; waiting, for a driver or because"
        " it was told to let go; silent, nothing is heard.",
        labels=["pool", "state"],
    )
    for name, pool in pools.items():
        states.add_metric([name, "measured"], pool.measured)
        states.add_metric([name, "waiting"], pool.waiting)
        states.add_metric([name, "silent"], pool.silent)
    yield states
    yield from _numbers("pool", _POOL, {name: pool.totals for name, pool in pools.items()})
    yield _errors("pool", _POOL, {name: pool.xids for name, pool in pools.items()})


def _numbers(what: str, whose: str, found: dict[str, GpuTotals]) -> Iterator[Metric]:
    for question in _FAMILIES:
        family = GaugeMetricFamily(
            f"sluice_{what}_{question.name}",
            whose + question.help,
            labels=[what],
        )
        for name, numbers in found.items():
            value = question.of(numbers)
            if value is not None:
                family.add_metric([name], value)
        yield family


def _errors(what: str, whose: str, found: dict[str, int]) -> Metric:
    family = CounterMetricFamily(
        f"sluice_{what}_gpu_xid_errors",
        f"{whose}errors that the driver told of its GPUs, each counted once.",
        labels=[what],
    )
    for name, count in found.items():
        family.add_metric([name], count)
    return family
