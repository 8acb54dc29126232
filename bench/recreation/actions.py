"""The actions of the incumbent's rules on the cluster, with their time: one request after another.

Evictions go on in the background, for as long as pods and their disruption budgets take. This
module is independent of the rules and of the time of the next pass.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

from bench.comparison import ComparedFleet, ComputeJob, NodeJobs
from bench.recreation.machine import EventQueue, IncumbentMachine, IncumbentNodeRun, RequestCounts
from bench.recreation.nodes import Annotation, IncumbentNode
from bench.recreation.passes import VALIDATION_TIMEOUT
from libs.contracts.node import UpgradeState as State
from libs.forecast.world import WorldModel

POLL = 1.0
"""Seconds between two checks of a pod that is being deleted."""


class TimedActions:
    """The actions of one controller; its rules reach the simulation only through them."""

    def __init__(
        self,
        machines: Iterable[IncumbentMachine],
        jobs: Iterable[NodeJobs],
        *,
        fleet: ComparedFleet,
        world: WorldModel,
        events: EventQueue,
        requests: RequestCounts,
        wake: Callable[[], None],
    ) -> None:
        self.now = 0.0
        """The time of the controller; within a pass it is ahead of the event queue."""
        self.wrote = False
        """Whether a state label was written, which wakes the controller; reset by the reader."""
        self.changed = 0.0
        """The time of the last write of a state."""
        self.unproven = 0
        """Nodes that finished without a validation."""
        self._machines = {machine.node.name: machine for machine in machines}
        self._jobs = dict(zip(self._machines, jobs, strict=True))
        self._fleet = fleet
        self._world = world
        self._events = events
        self._requests = requests
        self._wake = wake
        self._evicting: set[str] = set()

    def read(self, count: int) -> None:
        """Send reads one after the other."""
        self._requests.reads += count
        self.now += count * self._fleet.request

    def label(self, node: IncumbentNode, state: State) -> None:
        """Patch the state label and read it back."""
        self._write()
        self.read(1)
        self._requests.events += 1
        self._enter(node, state, self.now)
        self.wrote = True

    def annotate(self, node: IncumbentNode, key: Annotation, value: Any) -> None:
        """Patch an annotation and read it back; the controller does not watch annotations."""
        self._write()
        self.read(1)
        self._requests.events += 1
        setattr(node, key, value)

    def cordon(self, node: IncumbentNode) -> None:
        """Cordon the node."""
        if not node.cordoned:
            self._write()
            node.cordoned = True
        self._jobs[node.name].close(self.now)

    def uncordon(self, node: IncumbentNode) -> None:
        """Uncordon the node."""
        if node.cordoned:
            self._write()
            node.cordoned = False
        self._jobs[node.name].open(self.now)

    def jobs_run(self, node: IncumbentNode) -> bool:
        """Return whether jobs run, after one list request."""
        self.read(1)
        work = self._jobs[node.name]
        work.settle(self.now)
        return bool(work.running)

    def validators(self, node: IncumbentNode) -> list[bool]:
        """Return the readiness of each validator, after one list request."""
        self.read(1)
        return node.validators

    def delete_pod(self, node: IncumbentNode) -> None:
        """Delete the driver pod; the next one has the new driver."""
        self._write()
        machine = self._machines[node.name]
        machine.run.acted_on(self.now)
        if node.pod is not None:
            machine.replace(node.pod, self.now)

    def evict(self, node: IncumbentNode) -> None:
        """Evict all pods in the background; refused evictions are retried at once."""
        if node.name in self._evicting:
            return
        self._evicting.add(node.name)
        self._machines[node.name].run.acted_on(self.now)
        work = self._jobs[node.name]
        work.settle(self.now)
        pods = len(work.running)
        lists = 2 if pods else 1
        self._requests.reads += lists
        started = self.now + lists * self._fleet.request
        end = started + (self._fleet.eviction_timeout or math.inf)
        finished = max(
            (self._evict(job, work, started, end) for job in work.running), default=started
        )
        state = State.POD_RESTART_REQUIRED if finished <= end else State.UPGRADE_FAILED
        if min(finished, end) < math.inf:
            self._events.at(min(finished, end), lambda: self._evicted(node, state, pods))

    def waits_for_time(self, node: IncumbentNode) -> bool:
        """Return whether the node waits for a timeout or a job, which only a tick notices."""
        if node.state == State.VALIDATION_REQUIRED:
            return node.validating_since is not None
        if node.state != State.WAIT_FOR_JOBS_REQUIRED:
            return False
        jobs = self._jobs[node.name].running
        return node.jobs_since is not None or all(job.ends is not None for job in jobs)

    def _write(self) -> None:
        self._requests.writes += 1
        self.now += self._fleet.request

    def _evict(self, job: ComputeJob, work: NodeJobs, started: float, end: float) -> float:
        """Return when the pod is gone, by eviction or by the end of its job.

        An eviction that is refused forever, without a time limit, is not counted: its retries
        never end.
        """
        refused = self._world.refusal(job.pod).seconds
        granted = math.inf if refused is None else started + refused
        ends = math.inf if job.ends is None else job.ends
        attempted = max(0.0, min(granted, ends, end) - started)
        if attempted < math.inf:
            self._requests.refusals += int(attempted / self._fleet.request)
            self._requests.writes += int(attempted / self._fleet.request)
        if ends <= granted or granted > end:
            return ends
        self._requests.writes += 1
        self._requests.evictions += 1
        duration = self._world.eviction(job.pod, self._fleet.grace).seconds
        if duration is None:
            return math.inf
        self._requests.reads += math.ceil(duration / POLL)
        self._events.at(granted + duration, lambda: work.evict(job, granted + duration))
        return granted + duration

    def _evicted(self, node: IncumbentNode, state: State, pods: int) -> None:
        """Write the result of a background task, which the watch of the controller sees."""
        self._requests.reads += 1
        self._requests.writes += 1
        self._requests.events += 2 if pods else 1

        def written() -> None:
            self._evicting.discard(node.name)
            self._enter(node, state, self._events.now)
            self._wake()

        self._events.at(self._events.now + 2 * self._fleet.request, written)

    # Accounting.

    def _enter(self, node: IncumbentNode, state: State, time: float) -> None:
        """Change the state, and account for the time spent waiting for the controller."""
        run = self._machines[node.name].run
        if run.free is None:
            run.free = self._free_since(node, run, state)
        run.acted_on(time)
        if state == State.UPGRADE_FAILED and run.failed is None:
            run.failed = time
        if state == State.UPGRADE_DONE and run.started is not None and not run.proven:
            self.unproven += 1
        node.state, run.since, self.changed = state, time, time
        run.free = time if self._next_is_ours(node, state) else None

    def _free_since(self, node: IncumbentNode, run: IncumbentNodeRun, state: State) -> float | None:
        """Return when a wait ended whose end wakes no controller; None for other waits."""
        if node.state == State.VALIDATION_REQUIRED and state == State.UPGRADE_FAILED:
            return (node.validating_since or 0.0) + VALIDATION_TIMEOUT
        if node.state == State.WAIT_FOR_JOBS_REQUIRED:
            work = self._jobs[node.name]
            if work.running:
                return (node.jobs_since or 0.0) + self._fleet.job_timeout
            return max(run.since, work.emptied)
        return None

    def _next_is_ours(self, node: IncumbentNode, state: State) -> bool:
        """Return whether the node already waits only for the controller."""
        if state in (State.UPGRADE_REQUIRED, State.UPGRADE_DONE):
            return False
        if state == State.WAIT_FOR_JOBS_REQUIRED:
            return not self._fleet.wait_for_jobs
        if state == State.VALIDATION_REQUIRED:
            return bool(node.validators) and all(node.validators)
        if state == State.UPGRADE_FAILED:
            return node.pod is not None and node.pod.in_sync
        return True
