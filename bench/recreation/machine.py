"""The nodes under the incumbent: driver pods that are replaced, fail and become ready, validators.

Where the reference leaves something open, the constants assume what favours the incumbent.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from bench.comparison import ComparedFleet, startup_probe_end
from bench.recreation.nodes import MOST_RESTARTS, IncumbentDriverPod, IncumbentNode
from libs.contracts.node import UpgradeState as State
from libs.forecast.stage.driver_pods import CONTAINER
from libs.forecast.world import ProcessEnd, WorldModel

OLD = "old"
"""The name of the initial driver in a world."""

RECREATE_SECONDS = 0.1
"""Assumed: the time from the end of a driver pod until its successor is created and bound. The
controller cannot take a snapshot in between."""
PAUSING = 5.0
"""Assumed: the seconds until the operands are gone: one poll of the driver manager, every 5 s."""
MANAGER_READS = 25
MANAGER_WRITES = 2
"""Requests of the driver manager per start: 17 reads of its node, 8 polls for the operands; two
writes of labels, to pause and to resume them."""

FIRST_BACKOFF = 10.0
MAX_BACKOFF = 300.0
BACKOFF_RESET = 600.0
"""The back-off of a kubelet; a container that ran this long resets it."""

MAX_FAILURES = 30
"""Assumed: a container that failed this often in a row never succeeds."""


class EventQueue:
    """Events by time; events of the same time keep the order in which they were added."""

    def __init__(self) -> None:
        self.now = 0.0
        self._count = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._due)

    def at(self, time: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (max(time, self.now), self._count, event))

    def step(self) -> None:
        """Run the next event."""
        self.now, _, event = heapq.heappop(self._due)
        event()


class RequestCounts:
    """Counts of requests to the API server."""

    __slots__ = ("events", "evictions", "reads", "refusals", "writes")

    def __init__(self) -> None:
        self.reads = self.writes = self.events = self.evictions = self.refusals = 0


@dataclass(slots=True)
class IncumbentNodeRun:
    """The upgrade of one node."""

    started: float | None = None
    """When the driver pod was deleted."""
    failed: float | None = None
    """When the node was first reported as failed."""
    proven: bool = False
    """Whether a validation of the driver pod passed."""
    since: float = 0.0
    """When the node entered its state."""
    free: float | None = None
    """Since when the node waits only for the controller; None: it does not."""
    idle: float = 0.0

    def acted_on(self, at: float) -> None:
        """Add the time that the node waited for the controller until now."""
        if self.free is not None:
            self.idle += max(0.0, at - max(self.free, self.since))
        self.free = None


class IncumbentMachine:
    """One node's driver pod and validator, from the deletion of the old pod on."""

    def __init__(
        self,
        node: IncumbentNode,
        *,
        fleet: ComparedFleet,
        world: WorldModel,
        target: str,
        events: EventQueue,
        requests: RequestCounts,
    ) -> None:
        self.node = node
        self.run = IncumbentNodeRun()
        self._fleet = fleet
        self._world = world
        self._target = target
        self._events = events
        self._requests = requests
        self._starts = 0
        self._unloads = 0
        self._validations = 0
        self._short_runs = 0
        """Failures in a row, which determine the back-off."""

    def appear(self, at: float) -> None:
        """Create the driver pod of a node that had none, of the newest revision."""
        self._events.at(at, self._create_pod)

    def replace(self, pod: IncumbentDriverPod, at: float) -> None:
        """Delete the driver pod, which the DaemonSet replaces.

        The pod of a NotReady node stays, because no kubelet reports its end.
        """
        pod.terminating = True
        self.run.started = at
        if not self.node.ready:
            return
        stop = self._world.stop(self.node.name, OLD, CONTAINER).seconds
        grace = self._fleet.grace
        self._events.at(at + (grace if stop is None else min(stop, grace)), self._delete_pod)

    def _delete_pod(self) -> None:
        self.node.pod = None
        self.node.validators = []
        self._events.at(self._events.now + RECREATE_SECONDS, self._create_pod)

    def _create_pod(self) -> None:
        same_install = self._fleet.restart_only
        self.node.pod = IncumbentDriverPod(synced=True, same_install=same_install, ready=False)
        self._short_runs = 0
        self._events.at(self._events.now + PAUSING, self._unload)

    def _unload(self) -> None:
        """Run the driver manager, an init container that unloads the old driver."""
        self._requests.reads += MANAGER_READS
        self._requests.writes += MANAGER_WRITES
        if self._fleet.restart_only:
            self._start_operands()
            return
        end = self._world.unload(self.node.name, self._unloads)
        self._unloads += 1
        if end.after is None:
            return
        if end.exit_code:
            self._restart_later(end.after, self._unload)
        else:
            self._events.at(self._events.now + end.after, self._start_operands)

    def _start_operands(self) -> None:
        """Resume the operands, and pull the image of the driver."""
        pod = self.node.pod
        if pod is not None:
            pod.restarts = self._short_runs = 0
        self.node.validators = [False]
        pull = self._world.pull(self.node.name, self._target, CONTAINER).seconds
        if pull is not None:
            self._events.at(self._events.now + pull, self._start)

    def _start(self) -> None:
        """Run the container of the driver."""
        name, attempt = self.node.name, self._starts
        self._starts += 1
        if self._fleet.restart_only:
            ready = self._world.ready(name, self._target, CONTAINER, attempt).seconds
            end = startup_probe_end(ProcessEnd(ready))
        else:
            end = startup_probe_end(self._world.load(name, self._target, attempt))
        if end.exit_code:
            self._restart_later(end.after or 0.0, self._start)
        else:
            self._events.at(self._events.now + (end.after or 0.0), self._become_ready)

    def _restart_later(self, ran: float, start: Callable[[], None]) -> None:
        """Restart a failed container after its back-off."""
        if ran >= BACKOFF_RESET:
            self._short_runs = 0
        self._short_runs += 1
        backoff = min(MAX_BACKOFF, FIRST_BACKOFF * 2.0 ** (self._short_runs - 1))
        self._events.at(self._events.now + ran + backoff, lambda: self._restart(start))

    def _restart(self, start: Callable[[], None]) -> None:
        pod = self.node.pod
        if pod is None or pod.restarts == MAX_FAILURES:
            return
        pod.restarts += 1
        if pod.restarts == MOST_RESTARTS + 1:
            self._mark_free(State.POD_RESTART_REQUIRED)
        start()

    def _become_ready(self) -> None:
        pod = self.node.pod
        if pod is not None:
            pod.ready, pod.restarts = True, 0
            self._mark_free(State.UPGRADE_FAILED)
            self._validate(0)

    def _validate(self, failures: int) -> None:
        """Run the validator, which is restarted with the back-off of a kubelet."""
        verdict = self._world.validation(self.node.name, self._target, self._validations)
        self._validations += 1
        if verdict.after is None:
            return
        if not verdict.failed:
            self._events.at(self._events.now + verdict.after, self._finish_validation)
        elif failures < MAX_FAILURES:
            backoff = min(MAX_BACKOFF, FIRST_BACKOFF * 2.0**failures)
            later = self._events.now + verdict.after + backoff
            self._events.at(later, lambda: self._validate(failures + 1))

    def _finish_validation(self) -> None:
        self.node.validators = [True]
        self.run.proven = True
        self._mark_free(State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED)

    def _mark_free(self, *states: State) -> None:
        if self.node.state in states:
            self.run.free = self._events.now
