"""Run the jobs of a compared fleet on our stage, with the same accounting as for the incumbent.

A job is one pod; when it ends or is evicted, `NodeJobs` provides the next one.
"""

from bench.comparison import ComparedFleet, ComputeJob, NodeJobs
from libs.contracts.paths import CORDON
from libs.forecast.stage import tenant_pods
from libs.forecast.stage.objects import StageMachine
from libs.forecast.stage.objects import TenantPod as Pod
from libs.forecast.stage.state import StageState
from libs.forecast.world import WorldModel
from libs.testing.stage import Tenant


class StageJobs:
    """The jobs of all nodes; follows the machines and Nodes of a stage."""

    def __init__(self, state: StageState, *, fleet: ComparedFleet, world: WorldModel) -> None:
        self.accounts = {
            name: NodeJobs(name, number, fleet=fleet, world=world)
            for number, name in enumerate(fleet.names)
        }
        self._fleet = fleet
        self._world = world
        self._began = state.now
        for name in fleet.names:
            self._fill(state, state.machines[name])
        state.node_handlers += (self._on_node_change,)
        state.machine_handlers += (self._on_machine_change,)

    def settle(self, now: float) -> None:
        """Bring all accounts up to a time."""
        for account in self.accounts.values():
            account.settle(now - self._began)

    def _on_node_change(self, state: StageState, name: str, paths: frozenset[str]) -> None:
        """Close or open a node for new jobs as its cordon changes."""
        node = state.nodes.get(name)
        if CORDON not in paths or node is None or name in self._fleet.cordoned:
            return
        account, now = self.accounts[name], state.now - self._began
        if node.view.cordoned:
            account.close(now)
        else:
            account.open(now)
            self._fill(state, state.machines[name])

    def _on_machine_change(self, state: StageState, machine: StageMachine) -> None:
        """Account for the pods that ended or were evicted."""
        account, now = self.accounts[machine.name], state.now - self._began
        gone = [job for job in account.running if job.pod not in machine.tenant_pods]
        if not gone:
            return
        ended = [now]
        for job in gone:
            if job.ends is not None and state.now >= self._began + job.ends:
                ended.append(job.ends)
            else:
                account.evict(job, now)
        account.settle(max(ended))
        self._fill(state, machine)

    def _fill(self, state: StageState, machine: StageMachine) -> None:
        for job in self.accounts[machine.name].running:
            if job.pod not in machine.tenant_pods:
                machine.tenant_pods[job.pod] = Pod(uid=job.pod, tenant=self._tenant(job))
                state.touch(machine.name)
                if job.ends is not None:
                    state.call_at(self._began + job.ends, _end_job, machine.name, job.pod)
        state.machine_changed(machine)

    def _tenant(self, job: ComputeJob) -> Tenant:
        fleet = self._fleet
        return Tenant(
            name=job.pod.removeprefix("jobs/"),
            namespace="jobs",
            gpus=max(1, fleet.gpus // max(1, fleet.jobs)),
            job=fleet.wait_for_jobs,
            eviction_refused_for=self._world.refusal(job.pod).seconds,
            stop_seconds=self._world.eviction(job.pod, fleet.grace).seconds,
        )


def _end_job(state: StageState, name: str, uid: str) -> None:
    """End a job, unless it was evicted before."""
    machine = state.machines[name]
    pod = machine.tenant_pods.get(uid)
    if pod is not None:
        tenant_pods.remove(state, machine, pod)
