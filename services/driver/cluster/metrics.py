"""Metrics of this role: reconciliation under the GPU Operator's names, and writes by kind."""

from collections.abc import Generator
from contextlib import contextmanager

from libs.kube.errors import KubeError
from libs.runtime.env import Env
from services.driver.cluster.plan import OperandPlan
from services.driver.cluster.resources import WRITTEN

_SUCCESSFUL = ("ready", "disabled", "ignored", "")
"""Final states of a policy; empty for kinds without a state."""


class DriverMetrics:
    def __init__(self, env: Env) -> None:
        self._clock = env.clock
        self._nodes = env.metrics.gauge("gpu_operator_gpu_nodes_total", "Number of nodes with GPUs")
        self._succeeded = env.metrics.gauge(
            "gpu_operator_reconciliation_last_success_ts_seconds",
            "Timestamp (in seconds) of the last reconciliation loop success",
        )
        self._status = env.metrics.gauge(
            "gpu_operator_reconciliation_status",
            "1 if the reconciliation is currently successful, 0 if the operands are not ready,"
            " -1 if the cluster policy is unavailable, -2 if an error occurred within the"
            " operator.",
        )
        self._total = env.metrics.counter(
            "gpu_operator_reconciliation", "Total number of reconciliation"
        )
        self._failed = env.metrics.counter(
            "gpu_operator_reconciliation_failed", "Number of failed reconciliation"
        )
        self._features = env.metrics.gauge(
            "gpu_operator_reconciliation_has_nfd_labels",
            "1 if NFD mandatory kernel labels have been found, 0 otherwise",
        )
        self._writes = env.metrics.counter(
            "sluice_driver_api_writes",
            "Requests that write, by the kind of object and how they ended.",
            kind=WRITTEN,
            outcome=("written", "refused"),
        )

    def reconciled(self, plan: OperandPlan, *, held: bool) -> None:
        """Count a reconciliation; `held`: a GPU Operator is active, so nothing was written."""
        self._total.inc()
        self._nodes.set(plan.gpu_nodes)
        self._features.set(plan.has_features)
        successful = not held and all(
            status.state in _SUCCESSFUL for status in plan.statuses.values()
        )
        has_policy = plan.pools.cluster is not None or plan.pools.pools
        self._status.set((1 if successful else 0) if has_policy else -1)
        if successful:
            self._succeeded.set(self._clock.now())
        else:
            self._failed.inc()

    def reconcile_failed(self) -> None:
        self._total.inc()
        self._failed.inc()
        self._status.set(-2)

    @contextmanager
    def count_write(self, kind: str) -> Generator[None]:
        try:
            yield
        except KubeError:
            self._writes.labels(kind, "refused").inc()
            raise
        self._writes.labels(kind, "written").inc()
