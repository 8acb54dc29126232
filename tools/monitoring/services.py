"""The dashboard of Sluice's own services."""

from collections.abc import Mapping
from typing import Final

from monitoring.model import Dashboard, Panel, PanelKind, Query, Row, newest

_READY: Final = '(sluice_service_phase{phase="ready"} == 1)'
"""The name of the service of each process that is ready, by instance."""


def _rates(counters: Mapping[str, tuple[str, ...]]) -> tuple[Query, ...]:
    """Return the rate of each counter, by these labels."""
    return tuple(
        Query(
            f"sum by ({', '.join(labels)}) (rate({counter}[$__rate_interval]))"
            if labels
            else f"sum(rate({counter}[$__rate_interval]))",
            " ".join((_short(counter), *(f"{{{{{label}}}}}" for label in labels))),
        )
        for counter, labels in counters.items()
    )


def _short(counter: str) -> str:
    return counter.removeprefix("sluice_").removesuffix("_total").replace("_", " ")


_PROCESSES: Final = Row(
    "Processes",
    (
        Panel(
            title="Ready",
            help="Processes of each service that are ready.",
            queries=(
                Query('sum by (service) (sluice_service_phase{phase="ready"})', "{{service}}"),
            ),
            width=8,
        ),
        Panel(
            title="Leads",
            queries=(Query("sum(sluice_scheduler_leading)", "scheduler"),),
            kind=PanelKind.STATES,
            width=8,
        ),
        Panel(
            title="Versions",
            queries=(Query("count by (version) (sluice_build_info)", "{{version}}"),),
            width=8,
            stacked=True,
        ),
        Panel(
            title="CPU",
            queries=(
                Query(
                    "rate(process_cpu_seconds_total[$__rate_interval])"
                    f" * on (instance) group_left (service) {_READY}",
                    "{{service}} {{instance}}",
                ),
            ),
        ),
        Panel(
            title="Memory",
            queries=(
                Query(
                    f"process_resident_memory_bytes * on (instance) group_left (service) {_READY}",
                    "{{service}} {{instance}}",
                ),
            ),
            unit="bytes",
        ),
    ),
)
_WORK: Final = Row(
    "Work",
    (
        Panel(
            title="Decisions of the scheduler, 99 of 100",
            queries=(
                Query(
                    "histogram_quantile(0.99, sum by (le)"
                    " (rate(sluice_scheduler_decision_seconds_bucket[$__rate_interval])))",
                    "seconds",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Reconciles by outcome",
            queries=_rates({"sluice_reconciles_total": ("controller", "outcome")}),
            unit="ops",
        ),
        Panel(
            title="Reconciles, 99 of 100",
            queries=(
                Query(
                    "histogram_quantile(0.99, sum by (le, controller)"
                    " (rate(sluice_reconcile_seconds_bucket[$__rate_interval])))",
                    "{{controller}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Queues",
            help="Keys that wait, and for how long the oldest one has.",
            queries=(
                Query(newest("sluice_queue_waiting", "controller"), "{{controller}} waiting"),
                Query(newest("sluice_queue_oldest_seconds", "controller"), "{{controller}} oldest"),
            ),
        ),
        Panel(
            title="Writes to the API server",
            queries=_rates(
                {
                    "sluice_scheduler_api_writes_total": ("kind", "outcome"),
                    "sluice_driver_api_writes_total": ("kind", "outcome"),
                    "sluice_discovery_api_writes_total": ("outcome",),
                    "sluice_discovery_device_writes_total": ("outcome",),
                }
            ),
            unit="ops",
        ),
        Panel(
            title="What was refused or left out",
            help="Objects and values that cannot be true or read; the logs name them.",
            queries=(
                Query(newest("sluice_scheduler_objects_unreadable"), "unreadable objects"),
                Query(newest("sluice_discovery_refused_values"), "values of reports"),
                Query(newest("sluice_discovery_refused_labels"), "labels"),
                Query(newest("sluice_discovery_labels_left"), "labels of other managers"),
            ),
        ),
    ),
)
_BUS: Final = Row(
    "NATS",
    (
        Panel(
            title="Batches of telemetry",
            queries=_rates(
                {
                    "sluice_telemetry_batches_total": ("outcome",),
                    "sluice_telemetry_missing_batches_total": (),
                }
            ),
            unit="ops",
        ),
        Panel(
            title="Lost events, and refused samples",
            queries=_rates(
                {
                    "sluice_scheduler_events_dropped_total": (),
                    "sluice_gpu_health_unpublished_events_total": (),
                    "sluice_telemetry_refused_samples_total": (),
                }
            ),
            unit="ops",
        ),
        Panel(
            title="Sign-in",
            queries=_rates(
                {
                    "sluice_signin_answers_total": ("result",),
                    "sluice_signin_dropped_total": ("reason",),
                    "sluice_signin_reviews_total": ("outcome",),
                    "sluice_signin_revocations_total": (),
                }
            ),
            unit="ops",
        ),
        Panel(
            title="Sign-in: queue and CPU",
            queries=(
                Query(newest("sluice_signin_queue"), "queue"),
                *_rates({"sluice_signin_cpu_seconds_total": ("part",)}),
            ),
        ),
    ),
)

SERVICES: Final = Dashboard(
    name="services",
    title="Sluice / Services",
    help="The services themselves: processes, their work, and NATS.",
    rows=(_PROCESSES, _WORK, _BUS),
)
