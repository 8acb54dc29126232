"""The dashboard of the fleet: its nodes, GPUs and drivers, by pool."""

from typing import Final

from monitoring.model import Dashboard, Panel, PanelKind, Query, Row, Variable, newest

_POOL: Final = 'pool=~"$pool"'


def _pools(metric: str) -> Query:
    return Query(newest(metric, "pool", where=_POOL), "{{pool}}")


_TOTALS: Final = Row(
    "Now",
    (
        Panel(
            title="Nodes with GPUs",
            queries=(Query(f"sum({newest('sluice_pool_nodes', 'pool', 'state', where=_POOL)})"),),
            kind=PanelKind.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="GPUs",
            queries=(Query(f"sum({newest('sluice_pool_gpus', 'pool', where=_POOL)})"),),
            kind=PanelKind.NUMBER,
            width=4,
            height=4,
        ),
        Panel(
            title="GPUs by health",
            help="What each state means is in docs/health.md.",
            queries=(Query(newest("sluice_gpu_health", "state"), "{{state}}"),),
            kind=PanelKind.NUMBER,
            width=6,
            height=4,
        ),
        Panel(
            title="Silent nodes",
            help="Their telemetry agent sent nothing for 100 seconds.",
            queries=(
                Query(
                    "sum("
                    + newest("sluice_pool_nodes", "pool", where=f'state="silent",{_POOL}')
                    + ")"
                ),
            ),
            kind=PanelKind.NUMBER,
            width=4,
            height=4,
            wrong_from=1,
        ),
        Panel(
            title="State of the policies",
            help="1: ready. 0: operands are not ready yet. -1: there is no policy.",
            queries=(Query(newest("gpu_operator_reconciliation_status")),),
            kind=PanelKind.NUMBER,
            width=6,
            height=4,
        ),
    ),
)
_NODES: Final = Row(
    "Nodes",
    (
        Panel(
            title="Nodes by state of their telemetry",
            help="Measured; waiting for a driver or released for an upgrade; or silent.",
            queries=(
                Query(
                    "sum by (state) ("
                    + newest("sluice_pool_nodes", "pool", "state", where=_POOL)
                    + ")",
                    "{{state}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Nodes by version of the driver",
            queries=(
                Query(
                    "count by (driver_version) ("
                    + newest("sluice_node_info", "node", "driver_version", where=_POOL)
                    + ")",
                    "{{driver_version}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Nodes by proof of their driver",
            queries=(
                Query(
                    "sum by (standing) ("
                    + newest("sluice_validator_nodes", "pool", "standing", where=_POOL)
                    + ")",
                    "{{standing}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Unhealthy GPUs",
            queries=(Query(newest("sluice_gpu_unhealthy", "node", "gpu", "rule", "state")),),
            kind=PanelKind.TABLE,
        ),
    ),
)
_GPUS: Final = Row(
    "GPUs",
    (
        Panel(
            title="Utilization",
            queries=(_pools("sluice_pool_gpu_utilization_ratio"),),
            unit="percentunit",
            limits=(0, 1),
        ),
        Panel(
            title="Memory in use",
            queries=(
                Query(
                    newest("sluice_pool_gpu_memory_used_bytes", "pool", where=_POOL)
                    + " / "
                    + newest("sluice_pool_gpu_memory_bytes", "pool", where=_POOL),
                    "{{pool}}",
                ),
            ),
            unit="percentunit",
            limits=(0, 1),
        ),
        Panel(
            title="Power", queries=(_pools("sluice_pool_gpu_power_watts"),), unit="watt", width=8
        ),
        Panel(
            title="Hottest GPU",
            queries=(_pools("sluice_pool_gpu_temperature_celsius"),),
            unit="celsius",
            width=8,
        ),
        Panel(
            title="XID errors",
            queries=(
                Query(
                    "max by (pool) (increase("
                    f"sluice_pool_gpu_xid_errors_total{{{_POOL}}}[$__rate_interval]))",
                    "{{pool}}",
                ),
            ),
            width=8,
        ),
    ),
)

FLEET: Final = Dashboard(
    name="fleet",
    title="Sluice / Fleet",
    help="Nodes, GPUs and drivers of the cluster, by pool.",
    variables=(Variable(name="pool", metric="sluice_pool_nodes", label="pool"),),
    rows=(_TOTALS, _NODES, _GPUS),
)
