"""What the incumbent's rules do to the cluster, and how long it takes: requests one after another.

Evictions go on in the background, as long as pods and their disruption budgets take. Must not know
what a rule says, nor when the next pass comes.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

from bench.comparison import ComparedFleet, ComputeJob, NodeJobs
from bench.incumbent_machine import EventQueue, IncumbentMachine, IncumbentNodeRun, RequestCounts
from bench.incumbent_nodes import Annotation, IncumbentNode
from bench.incumbent_pass import VALIDATION_TIMEOUT
from libs.contracts.node import UpgradeState as State
from libs.forecast.world import WorldModel

REQUEST = 0.005
"""Assumed: seconds for one request to the API server, and no limit on how many a client sends."""
POLL = 1.0
"""Seconds between two looks at a pod that is being deleted."""


class TimedActions:
    """The hands of one controller; its rules see nothing else of the simulation."""

    def __init__(
        self,
        machines: Iterable[IncumbentMachine],
        jobs: Iterable[NodeJobs],
        *,
        fleet: ComparedFleet,
        world: WorldModel,
        events: EventQueue,
        tally: RequestCounts,
        wake: Callable[[], None],
    ) -> None:
        self.now = 0.0
        """Within a pass it is ahead of the agenda."""
        self.wrote = False
        """A state label, which wakes the controller again; whoever reads it resets it."""
        self.changed = 0.0
        """When a state was last written."""
        self.unproven = 0
        """Nodes that were done without a validation."""
        self._machines = {machine.node.name: machine for machine in machines}
        self._works = dict(zip(self._machines, jobs, strict=True))
        self._fleet = fleet
        self._world = world
        self._agenda = events
        self._tally = tally
        self._wake = wake
        self._evicting: set[str] = set()

    def read(self, count: int) -> None:
        """Reads, one after the other."""
        self._tally.reads += count
        self.now += count * REQUEST

    def label(self, node: IncumbentNode, state: State) -> None:
        """A patch, and the read that sees it."""
        self._write()
        self.read(1)
        self._tally.events += 1
        self._enter(node, state, self.now)
        self.wrote = True

    def annotate(self, node: IncumbentNode, key: Annotation, value: Any) -> None:
        """A patch, and the read that sees it; nobody watches annotations."""
        self._write()
        self.read(1)
        self._tally.events += 1
        setattr(node, key, value)

    def cordon(self, node: IncumbentNode) -> None:
        """The scheduler sends nothing more."""
        if not node.cordoned:
            self._write()
            node.cordoned = True
        self._works[node.name].close(self.now)

    def uncordon(self, node: IncumbentNode) -> None:
        """The scheduler sends again."""
        if node.cordoned:
            self._write()
            node.cordoned = False
        self._works[node.name].open(self.now)

    def jobs_run(self, node: IncumbentNode) -> bool:
        """One list."""
        self.read(1)
        work = self._works[node.name]
        work.settle(self.now)
        return bool(work.running)

    def validators(self, node: IncumbentNode) -> list[bool]:
        """One list."""
        self.read(1)
        return node.validators

    def delete_pod(self, node: IncumbentNode) -> None:
        """The next one has the new driver."""
        self._write()
        machine = self._machines[node.name]
        machine.course.acted_on(self.now)
        if node.pod is not None:
            machine.replace(node.pod, self.now)

    def evict(self, node: IncumbentNode) -> None:
        """In the background, all pods at once; what is refused is tried again at once."""
        if node.name in self._evicting:
            return
        self._evicting.add(node.name)
        self._machines[node.name].course.acted_on(self.now)
        work = self._works[node.name]
        work.settle(self.now)
        pods = len(work.running)
        lists = 2 if pods else 1
        self._tally.reads += lists
        began = self.now + lists * REQUEST
        end = began + (self._fleet.eviction_timeout or math.inf)
        over = max((self._evict(job, work, began, end) for job in work.running), default=began)
        state = State.POD_RESTART_REQUIRED if over <= end else State.UPGRADE_FAILED
        if min(over, end) < math.inf:
            self._agenda.at(min(over, end), lambda: self._evicted(node, state, pods))

    def waits_for_time(self, node: IncumbentNode) -> bool:
        """Whether a clock runs for it, or a job that ends: only a tick will see that."""
        if node.state == State.VALIDATION_REQUIRED:
            return node.validating_since is not None
        if node.state != State.WAIT_FOR_JOBS_REQUIRED:
            return False
        jobs = self._works[node.name].running
        return node.jobs_since is not None or all(job.ends is not None for job in jobs)

    def _write(self) -> None:
        self._tally.writes += 1
        self.now += REQUEST

    def _evict(self, job: ComputeJob, work: NodeJobs, began: float, end: float) -> float:
        """When the pod is gone, be it that its job has ended.

        What is refused for ever and without a time limit is not counted: it has no number.
        """
        refused = self._world.refusal(job.pod).seconds
        granted = math.inf if refused is None else began + refused
        ends = math.inf if job.ends is None else job.ends
        tried = max(0.0, min(granted, ends, end) - began)
        if tried < math.inf:
            self._tally.refusals += int(tried / REQUEST)
            self._tally.writes += int(tried / REQUEST)
        if ends <= granted or granted > end:
            return ends
        self._tally.writes += 1
        self._tally.evictions += 1
        takes = self._world.eviction(job.pod, self._fleet.grace).seconds
        if takes is None:
            return math.inf
        self._tally.reads += math.ceil(takes / POLL)
        self._agenda.at(granted + takes, lambda: work.evict(job, granted + takes))
        return granted + takes

    def _evicted(self, node: IncumbentNode, state: State, pods: int) -> None:
        """The background writes what came of it, and the controller's watch sees it."""
        self._tally.reads += 1
        self._tally.writes += 1
        self._tally.events += 2 if pods else 1

        def written() -> None:
            self._evicting.discard(node.name)
            self._enter(node, state, self._agenda.now)
            self._wake()

        self._agenda.at(self._agenda.now + 2 * REQUEST, written)

    # Keeping the account.

    def _enter(self, node: IncumbentNode, state: State, at: float) -> None:
        """Leave one state for another: was the controller waited for, and is it now."""
        course = self._machines[node.name].course
        if course.free is None:
            course.free = self._free_since(node, course, state)
        course.acted_on(at)
        if state == State.UPGRADE_FAILED and course.failed is None:
            course.failed = at
        if state == State.UPGRADE_DONE and course.started is not None and not course.proven:
            self.unproven += 1
        node.state, course.since, self.changed = state, at, at
        course.free = at if self._next_is_ours(node, state) else None

    def _free_since(
        self, node: IncumbentNode, course: IncumbentNodeRun, state: State
    ) -> float | None:
        """When what had been waited for was over; only for what nobody announces."""
        if node.state == State.VALIDATION_REQUIRED and state == State.UPGRADE_FAILED:
            return (node.validating_since or 0.0) + VALIDATION_TIMEOUT
        if node.state == State.WAIT_FOR_JOBS_REQUIRED:
            work = self._works[node.name]
            if work.running:
                return (node.jobs_since or 0.0) + self._fleet.job_timeout
            return max(course.since, work.emptied)
        return None

    def _next_is_ours(self, node: IncumbentNode, state: State) -> bool:
        """Whether in this state nothing but the controller is waited for, now already."""
        if state in (State.UPGRADE_REQUIRED, State.UPGRADE_DONE):
            return False
        if state == State.WAIT_FOR_JOBS_REQUIRED:
            return not self._fleet.wait_for_jobs
        if state == State.VALIDATION_REQUIRED:
            return bool(node.validators) and all(node.validators)
        if state == State.UPGRADE_FAILED:
            return node.pod is not None and node.pod.in_sync
        return True
