"""The dashboard of driver upgrades: progress, waits, budget and time left."""

from typing import Final

from monitoring.model import Dashboard, Panel, PanelKind, Query, Row, newest

_STATES: Final = ("pending", "in_progress", "done", "failed")
_BY_STATE: Final = {each: newest(f"gpu_operator_nodes_upgrades_{each}") for each in _STATES}
_LEFT: Final = f"({_BY_STATE['pending']} + {_BY_STATE['in_progress']})"
_RATE: Final = 'sum(rate(sluice_scheduler_state_seconds_count{state="validation-required"}[1h]))'

_PROGRESS: Final = Row(
    "Progress",
    (
        Panel(
            title="Done",
            help="Of the nodes that have an upgrade state.",
            queries=(Query(f"{_BY_STATE['done']} / ({' + '.join(_BY_STATE.values())})"),),
            kind=PanelKind.GAUGE,
            unit="percentunit",
            limits=(0, 1),
            width=4,
            height=6,
        ),
        Panel(
            title="Time left",
            help="At the rate of the last hour. Without a finished node in it there is no answer:"
            " `sluice plan` computes one.",
            queries=(Query(f"{_LEFT} / ({_RATE} > 0)"),),
            kind=PanelKind.NUMBER,
            unit="s",
            width=4,
            height=6,
        ),
        Panel(
            title="Free places of the budget",
            help="Nodes that could start now. 0 while the budget is used up.",
            queries=(Query(newest("gpu_operator_nodes_upgrades_available")),),
            kind=PanelKind.NUMBER,
            width=4,
            height=6,
        ),
        Panel(
            title="Failed",
            queries=(Query(_BY_STATE["failed"]),),
            kind=PanelKind.NUMBER,
            wrong_from=1,
            width=4,
            height=6,
        ),
        Panel(
            title="Automatic upgrades",
            help="1 if a policy has them on.",
            queries=(Query(newest("gpu_operator_driver_auto_upgrade_enabled")),),
            kind=PanelKind.NUMBER,
            width=4,
            height=6,
        ),
        Panel(
            title="Schedulers that lead",
            help="1; 0 while none does.",
            queries=(Query("sum(sluice_scheduler_leading)"),),
            kind=PanelKind.NUMBER,
            width=4,
            height=6,
        ),
        Panel(
            title="Nodes by state",
            queries=tuple(
                Query(query, state.replace("_", " ")) for state, query in _BY_STATE.items()
            ),
            stacked=True,
        ),
        Panel(
            title="Nodes that wait, by cause",
            help="docs/states.md#waits says what each code means and who can end it.",
            queries=(Query(newest("sluice_scheduler_nodes_waiting", "code") + " > 0", "{{code}}"),),
            stacked=True,
        ),
    ),
)
_TIMES: Final = Row(
    "Where the time goes",
    (
        Panel(
            title="Time in each state, 9 of 10 nodes",
            queries=(
                Query(
                    "histogram_quantile(0.9, sum by (le, state)"
                    " (rate(sluice_scheduler_state_seconds_bucket[1h])))",
                    "{{state}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Mean time in each state",
            queries=(
                Query(
                    "sum by (state) (rate(sluice_scheduler_state_seconds_sum[1h]))"
                    " / (sum by (state) (rate(sluice_scheduler_state_seconds_count[1h])) > 0)",
                    "{{state}}",
                ),
            ),
            unit="s",
        ),
    ),
)
_PROOF: Final = Row(
    "Proof",
    (
        Panel(
            title="Nodes by proof of their driver",
            queries=(
                Query(
                    newest("sluice_validator_nodes", "pool", "standing"), "{{pool}} {{standing}}"
                ),
            ),
        ),
        Panel(
            title="Failed validations, by step",
            queries=(
                Query(newest("sluice_validator_nodes_failed", "pool", "step"), "{{pool}} {{step}}"),
            ),
        ),
        Panel(
            title="Failed nodes",
            queries=(Query(newest("sluice_validator_node_failed", "node", "step", "reason")),),
            kind=PanelKind.TABLE,
        ),
        Panel(
            title="Diagnoses",
            help="docs/metrics.md#diagnoses says what to do.",
            queries=(
                Query(newest("sluice_validator_node_diagnosis", "node", "diagnosis", "severity")),
            ),
            kind=PanelKind.TABLE,
        ),
    ),
)

UPGRADE: Final = Dashboard(
    name="upgrade",
    title="Sluice / Upgrade",
    help="The upgrade of drivers: progress, what nodes wait for, the budget, and time left.",
    rows=(_PROGRESS, _TIMES, _PROOF),
)
