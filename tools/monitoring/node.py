"""The dashboard of one node: what it has, what it proved, and how its GPUs fare."""

from typing import Final

from monitoring.model import Dashboard, Panel, PanelKind, Query, Row, Variable, newest

_NODE: Final = 'node="$node"'


def _graph(
    title: str, metric: str, unit: str, *, limits: tuple[float, float] | None = None
) -> Panel:
    return Panel(
        title=title, queries=(Query(newest(metric, where=_NODE), title),), unit=unit, limits=limits
    )


_DRIVER: Final = Row(
    "Driver",
    (
        Panel(
            title="Pool and version of the driver",
            queries=(Query(newest("sluice_node_info", "pool", "driver_version", where=_NODE)),),
            kind=PanelKind.TABLE,
            height=5,
        ),
        Panel(
            title="Proven in this boot",
            help="1 if the driver was validated in this boot of the node.",
            queries=(Query(newest("gpu_operator_node_driver_validation", where=_NODE), "proven"),),
            kind=PanelKind.STATES,
            height=5,
        ),
        Panel(
            title="Last proof",
            queries=(
                Query(
                    newest(
                        "gpu_operator_node_driver_validation_last_success_ts_seconds", where=_NODE
                    )
                    + " * 1000"
                ),
            ),
            kind=PanelKind.NUMBER,
            unit="dateTimeFromNow",
            width=6,
            height=5,
        ),
        Panel(
            title="Age of its telemetry",
            help="A batch arrives every 30 seconds; after 100 the node is silent.",
            queries=(Query(newest("sluice_node_telemetry_age_seconds", where=_NODE)),),
            kind=PanelKind.NUMBER,
            unit="s",
            wrong_from=60,
            width=6,
            height=5,
        ),
        Panel(
            title="Why its validation failed",
            queries=(Query(newest("sluice_validator_node_failed", "step", "reason", where=_NODE)),),
            kind=PanelKind.TABLE,
            height=5,
        ),
        Panel(
            title="Diagnoses",
            help="docs/metrics.md#diagnoses says what to do.",
            queries=(
                Query(
                    newest("sluice_validator_node_diagnosis", "diagnosis", "severity", where=_NODE)
                ),
            ),
            kind=PanelKind.TABLE,
            height=5,
        ),
    ),
)
_GPUS: Final = Row(
    "GPUs",
    (
        Panel(
            title="Broken rules of health",
            help="docs/health.md says what each rule means.",
            queries=(
                Query(
                    newest("sluice_gpu_unhealthy", "gpu", "rule", "state", where=_NODE),
                    "{{gpu}} {{rule}} {{state}}",
                ),
            ),
            kind=PanelKind.STATES,
        ),
        Panel(
            title="XID errors",
            queries=(
                Query(
                    f"max(increase(sluice_node_gpu_xid_errors_total{{{_NODE}}}[$__rate_interval]))",
                    "XID errors",
                ),
            ),
        ),
        Panel(
            title="GPUs",
            help="And those of which nothing can be read.",
            queries=(
                Query(newest("sluice_node_gpus", where=_NODE), "GPUs"),
                Query(newest("sluice_node_gpus_mute", where=_NODE), "mute"),
            ),
        ),
        _graph("Utilization", "sluice_node_gpu_utilization_ratio", "percentunit", limits=(0, 1)),
        Panel(
            title="Memory",
            queries=(
                Query(newest("sluice_node_gpu_memory_used_bytes", where=_NODE), "in use"),
                Query(newest("sluice_node_gpu_memory_bytes", where=_NODE), "in total"),
            ),
            unit="bytes",
        ),
        _graph("Power", "sluice_node_gpu_power_watts", "watt"),
        _graph("Hottest GPU", "sluice_node_gpu_temperature_celsius", "celsius"),
    ),
)

NODE: Final = Dashboard(
    name="node",
    title="Sluice / Node",
    help="One node: its driver, its proof, and the health of its GPUs.",
    variables=(Variable(name="node", metric="sluice_node_info", label="node", several=False),),
    rows=(_DRIVER, _GPUS),
)
