"""What is measured of this role: under the names that dashboards know, and its writes by kind."""

from collections.abc import Generator
from contextlib import contextmanager

from libs.kube.errors import KubeError
from libs.runtime.env import Env
from services.driver.cluster.plan import OperandPlan
from services.driver.cluster.resources import WRITTEN

_WELL = ("ready", "disabled", "ignored", "")
"""States that ask for nothing more; empty: the kind has none."""


class DriverMetrics:
    """Those of one process."""

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
        """Everything was looked at; `held`: and nothing may be done."""
        self._total.inc()
        self._nodes.set(plan.gpu_nodes)
        self._features.set(plan.has_features)
        well = not held and all(one.state in _WELL for one in plan.statuses.values())
        someone = plan.pools.cluster is not None or plan.pools.pools
        self._status.set((1 if well else 0) if someone else -1)
        if well:
            self._succeeded.set(self._clock.now())
        else:
            self._failed.inc()

    def reconcile_failed(self) -> None:
        """It could not be looked at."""
        self._total.inc()
        self._failed.inc()
        self._status.set(-2)

    @contextmanager
    def count_write(self, kind: str) -> Generator[None]:
        """One write to an object of this kind; without an answer it counts as refused."""
        try:
            yield
        except KubeError:
            self._writes.labels(kind, "refused").inc()
            raise
        self._writes.labels(kind, "written").inc()
