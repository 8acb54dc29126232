"""The alerts. Each has a page in docs/runbooks that says what to do."""

from typing import Final

from monitoring.model import Alert, Severity, newest


def _waiting(code: str) -> str:
    return f'sluice_scheduler_nodes_waiting{{code="{code}"}}'


_IN_FLIGHT: Final = newest("gpu_operator_nodes_upgrades_in_progress")

ALERTS: Final = (
    Alert(
        name="SluiceUpgradeStuck",
        expr=f"({_IN_FLIGHT} - max({_waiting('jobs')}) - max({_waiting('frozen')})) > 0"
        " and on () sum(increase(sluice_scheduler_state_seconds_count[1h])) == 0",
        lasting="15m",
        severity=Severity.WARNING,
        summary="Nodes are being upgraded, and none has got further for an hour",
        description="{{ $value }} nodes are in flight that neither wait for jobs nor are frozen.",
        runbook="stuck-upgrade",
    ),
    Alert(
        name="SluiceRolloutHalted",
        expr=f"max({_waiting('halted')}) > 0",
        lasting="1m",
        severity=Severity.CRITICAL,
        summary="A driver failed as often as is allowed, and its rollout is halted",
        description="{{ $value }} nodes wait until a person releases it or sets another driver.",
        runbook="halted-rollout",
    ),
    Alert(
        name="SluiceAgentSilent",
        expr='sum(max by (pool) (sluice_pool_nodes{state="silent"})) > 0'
        f" or max({_waiting('agent-silent')}) > 0",
        lasting="10m",
        severity=Severity.WARNING,
        summary="Agents of Sluice are silent",
        description="{{ $value }} nodes have an agent that should be heard and is not.",
        runbook="silent-agent",
    ),
    Alert(
        name="SluiceGPUFailed",
        expr='max by (node, gpu, rule) (sluice_gpu_unhealthy{state="failed"}) > 0',
        lasting="1m",
        severity=Severity.WARNING,
        summary="GPU {{ $labels.gpu }} of node {{ $labels.node }} has failed",
        description="It breaks the rule {{ $labels.rule }}; its node is left out of upgrades.",
        runbook="gpu-failed",
    ),
    Alert(
        name="SluiceXID",
        expr="max by (node) (increase(sluice_node_gpu_xid_errors_total[10m])) > 0",
        lasting="0m",
        severity=Severity.WARNING,
        summary="The driver of node {{ $labels.node }} reported an XID error",
        description="About {{ $value | humanize }} in the last ten minutes.",
        runbook="xid",
    ),
    Alert(
        name="SluiceBudgetExhausted",
        expr=f"max({_waiting('budget')}) > 0 and on () {_IN_FLIGHT} == 0",
        lasting="15m",
        severity=Severity.WARNING,
        summary="Nodes that are unavailable anyway use up the budget of an upgrade",
        description="{{ $value }} nodes wait for a place in the budget, and none is in flight.",
        runbook="budget-exhausted",
    ),
    Alert(
        name="SluiceNATSDown",
        expr='(sum(rate(sluice_telemetry_batches_total{outcome="taken"}[5m])) == 0'
        " and on () sum(max by (pool, state) (sluice_pool_nodes)) > 0)"
        f" or max({_waiting('bus')}) > 0",
        lasting="5m",
        severity=Severity.CRITICAL,
        summary="NATS does not work: nothing arrives from any agent, or the scheduler cannot read",
        description="Upgrades stand still; GPUs and their pods go on.",
        runbook="nats-down",
    ),
    Alert(
        name="SluiceNoLeader",
        expr="max(sluice_scheduler_leading) == 0 or absent(sluice_scheduler_leading)",
        lasting="5m",
        severity=Severity.CRITICAL,
        summary="No scheduler leads",
        description="No upgrade starts and none goes on; GPUs and their pods go on.",
        runbook="no-leader",
    ),
    Alert(
        name="SluiceQueriesUnanswered",
        expr=(
            "max(sluice_scheduler_leading) == 1"
            " and on () max(sluice_scheduler_serving_queries) == 0"
        ),
        lasting="5m",
        severity=Severity.WARNING,
        summary="The scheduler leads and answers no queries",
        description="`sluice why`, `status` and `plan` get no answer; upgrades go on.",
        runbook="nats-down",
    ),
    Alert(
        name="SluiceNATSFlooded",
        expr="sum(increase(sluice_nats_floods_total[15m])) > 0",
        lasting="0m",
        severity=Severity.WARNING,
        summary="A component of a node floods NATS, and is cut off for a minute at a time",
        description="The log of sign-in, or without it of the scheduler, has name, host and rate.",
        runbook="silent-agent",
    ),
    Alert(
        name="SluiceTelemetryStale",
        expr="quantile(0.9, sluice_node_telemetry_age_seconds) > 60 or absent(sluice_gpu_health)",
        lasting="10m",
        severity=Severity.WARNING,
        summary="The metrics of GPUs are old or missing",
        description="Telemetry's service is not read, or a tenth of the nodes sends too late.",
        runbook="telemetry-stale",
    ),
)
