"""The scheduler's settings, and its `run`."""

from libs.bus.port import Bus
from libs.contracts.node import MANAGER
from libs.kube.client import Kube
from libs.kube.lease.election import Candidate
from libs.kube.requests import Transport
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.cluster_role import ClusterSettings
from services.scheduler.inputs import Inputs
from services.scheduler.leader import lead_term
from services.scheduler.queries import PlanRunner, run_in_thread

LEASE = "sluice-scheduler"


class SchedulerSettings(ClusterSettings, frozen=True, kw_only=True):
    """Settings of the scheduler."""

    namespace: str
    """Of the operands, and of the lease."""
    pod_name: str = "scheduler"
    """Shown as the holder of the lease."""


async def run(
    settings: SchedulerSettings,
    *,
    env: Env,
    bus: Bus,
    kube: Transport,
    service: Service,
    plan_runner: PlanRunner = run_in_thread,
) -> None:
    """Follow the cluster and the bus; upgrade nodes while leading."""
    candidate = Candidate(
        kube,
        manager=MANAGER,
        namespace=settings.namespace,
        lease=LEASE,
        identity=settings.pod_name,
        env=env,
    )
    inputs = Inputs(candidate.kube, bus, namespace=settings.namespace, env=env)

    async def lead(fenced: Kube) -> None:
        await lead_term(inputs, kube=fenced, holder=candidate.holder, plan_runner=plan_runner)

    async def sync_and_lead() -> None:
        await inputs.wait_for_sync()
        await candidate.run(lead, on_term_end=lambda: inputs.metrics.set_leading(False))

    await inputs.open(service)
    inputs.start(service)
    service.run_forever("lead", sync_and_lead())
