"""Metrics begin at zero, in a registry of their own."""

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from libs.runtime.clock import Clock
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from tests.unit.runtime.virtual_time import in_virtual_time


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_each_combination_of_labels_begins_at_zero():
    metrics = Metrics(version="1.2.3")
    done = metrics.counter("ops", "Operations.", kind=["swap", "idle"], outcome=["done", "failed"])
    metrics.gauge("depth", "Depth of the queue.")
    metrics.histogram("took_seconds", "How long it took.", [1, 5], kind=["swap"])
    done.labels("swap", "done").inc()
    assert samples(metrics) == {
        ("sluice_build_info", "1.2.3"): 1,
        ("ops_total", "swap", "done"): 1,
        ("ops_total", "swap", "failed"): 0,
        ("ops_total", "idle", "done"): 0,
        ("ops_total", "idle", "failed"): 0,
        ("depth",): 0,
        ("took_seconds_bucket", "swap", "1.0"): 0,
        ("took_seconds_bucket", "swap", "5.0"): 0,
        ("took_seconds_bucket", "swap", "+Inf"): 0,
        ("took_seconds_count", "swap"): 0,
        ("took_seconds_sum", "swap"): 0,
    }
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("sluice")]


@in_virtual_time()
async def test_the_phase_metric_follows_the_service(clock: Clock) -> None:
    metrics = Metrics(version="1")

    def current() -> list[str]:
        items = samples(metrics).items()
        return [key[1] for key, value in items if key[0] == "sluice_service_phase" and value]

    service = Service("driver", clock=clock)
    metrics.watch(service)
    phases: list[list[str]] = []

    async def record_phase() -> None:
        phases.append(current())

    async with service:
        service.on_drain("record_phase", record_phase)
        await record_phase()
        service.stop("done")
    assert [*phases, current()] == [["starting"], ["draining"], ["stopped"]]
