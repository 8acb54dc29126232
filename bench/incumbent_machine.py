"""The nodes under the incumbent: driver pods that are replaced, fail and get ready, and validators.

What the reference leaves open is assumed in the incumbent's favour, and said at each constant. Must
not know the controller.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from bench.comparison import ComparedFleet, startup_probe_end
from bench.incumbent_nodes import MOST_RESTARTS, IncumbentDriverPod, IncumbentNode
from libs.contracts.node import UpgradeState as State
from libs.forecast.stage.driver_pods import CONTAINER
from libs.forecast.world import ProcessEnd, WorldModel

OLD = "old"
"""What the driver is called that is there at first: a world is asked about drivers by name."""

RECREATE_SECONDS = 0.1
"""Assumed: from a driver pod's end until its DaemonSet's controller has made the next, and it is
bound. In between no snapshot can be had."""
PAUSING = 5.0
"""Assumed: until the operands have gone for the driver manager, which looks every 5 s: one look."""
MANAGER_READS = 25
MANAGER_WRITES = 2
"""Requests of the driver manager at each start: 17 for its node, 8 to see the operands gone; labels
that pause them, and labels that bring them back."""

FIRST_BACKOFF = 10.0
LONGEST_BACKOFF = 300.0
FORGIVEN_AFTER = 600.0
"""A kubelet's; what ran so long starts again with the shortest."""

TRIES = 30
"""Assumed: what has failed so often in a row never works."""


class EventQueue:
    """What happens when; things at the same time in the order in which they were entered."""

    def __init__(self) -> None:
        self.now = 0.0
        self._count = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._due)

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Enter it."""
        self._count += 1
        heapq.heappush(self._due, (max(time, self.now), self._count, event))

    def step(self) -> None:
        """Let the next thing happen."""
        self.now, _, event = heapq.heappop(self._due)
        event()


class RequestCounts:
    """Requests to the API server, and what else is counted."""

    __slots__ = ("events", "evictions", "reads", "refusals", "writes")

    def __init__(self) -> None:
        self.reads = self.writes = self.events = self.evictions = self.refusals = 0


@dataclass(slots=True)
class IncumbentNodeRun:
    """What became of one node."""

    started: float | None = None
    """When its driver pod was deleted."""
    failed: float | None = None
    """When it was first said to have failed."""
    proven: bool = False
    """A validation of its driver pod has passed."""
    since: float = 0.0
    """When it came into its state."""
    free: float | None = None
    """Since when nothing but the controller is waited for; None: something else is."""
    idle: float = 0.0

    def acted_on(self, at: float) -> None:
        """The controller does something about it, and has let it wait until now."""
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
        tally: RequestCounts,
    ) -> None:
        self.node = node
        self.course = IncumbentNodeRun()
        self._fleet = fleet
        self._world = world
        self._target = target
        self._agenda = events
        self._tally = tally
        self._starts = 0
        self._unloads = 0
        self._validations = 0
        self._short_runs = 0
        """Failures in a row, for the back-off."""

    def appear(self, at: float) -> None:
        """The driver pod was not there at first; it is of the newest revision."""
        self._agenda.at(at, self._made)

    def replace(self, pod: IncumbentDriverPod, at: float) -> None:
        """The driver pod is deleted at that time; the DaemonSet makes another.

        Not where no kubelet says that it has ended.
        """
        pod.terminating = True
        self.course.started = at
        if not self.node.ready:
            return
        stop = self._world.stop(self.node.name, OLD, CONTAINER).seconds
        grace = self._fleet.grace
        self._agenda.at(at + (grace if stop is None else min(stop, grace)), self._ended)

    def _ended(self) -> None:
        self.node.pod = None
        self.node.validators = []
        self._agenda.at(self._agenda.now + RECREATE_SECONDS, self._made)

    def _made(self) -> None:
        keeps = self._fleet.restart_only
        self.node.pod = IncumbentDriverPod(synced=True, same_install=keeps, ready=False)
        self._short_runs = 0
        self._agenda.at(self._agenda.now + PAUSING, self._unload)

    def _unload(self) -> None:
        """The driver manager, an init container."""
        self._tally.reads += MANAGER_READS
        self._tally.writes += MANAGER_WRITES
        if self._fleet.restart_only:
            self._released()
            return
        ending = self._world.unload(self.node.name, self._unloads)
        self._unloads += 1
        if ending.after is None:
            return
        if ending.exit_code:
            self._again(ending.after, self._unload)
        else:
            self._agenda.at(self._agenda.now + ending.after, self._released)

    def _released(self) -> None:
        """The operands come back, and the driver's image is fetched."""
        pod = self.node.pod
        if pod is not None:
            pod.restarts = self._short_runs = 0
        self.node.validators = [False]
        pull = self._world.pull(self.node.name, self._target, CONTAINER).seconds
        if pull is not None:
            self._agenda.at(self._agenda.now + pull, self._start)

    def _start(self) -> None:
        """The driver's container."""
        name, attempt = self.node.name, self._starts
        self._starts += 1
        if self._fleet.restart_only:
            ready = self._world.ready(name, self._target, CONTAINER, attempt).seconds
            ending = startup_probe_end(ProcessEnd(ready))
        else:
            ending = startup_probe_end(self._world.load(name, self._target, attempt))
        if ending.exit_code:
            self._again(ending.after or 0.0, self._start)
        else:
            self._agenda.at(self._agenda.now + (ending.after or 0.0), self._ready)

    def _again(self, ran: float, start: Callable[[], None]) -> None:
        """A container fails after so long, and is started again after its back-off."""
        if ran >= FORGIVEN_AFTER:
            self._short_runs = 0
        self._short_runs += 1
        backoff = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** (self._short_runs - 1))
        self._agenda.at(self._agenda.now + ran + backoff, lambda: self._restarted(start))

    def _restarted(self, start: Callable[[], None]) -> None:
        pod = self.node.pod
        if pod is None or pod.restarts == TRIES:
            return
        pod.restarts += 1
        if pod.restarts == MOST_RESTARTS + 1:
            self._free_in(State.POD_RESTART_REQUIRED)
        start()

    def _ready(self) -> None:
        pod = self.node.pod
        if pod is not None:
            pod.ready, pod.restarts = True, 0
            self._free_in(State.UPGRADE_FAILED)
            self._validate(0)

    def _validate(self, failures: int) -> None:
        """The validator's pod tries again by itself, with a kubelet's back-off."""
        verdict = self._world.validation(self.node.name, self._target, self._validations)
        self._validations += 1
        if verdict.after is None:
            return
        if not verdict.failed:
            self._agenda.at(self._agenda.now + verdict.after, self._validated)
        elif failures < TRIES:
            backoff = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0**failures)
            later = self._agenda.now + verdict.after + backoff
            self._agenda.at(later, lambda: self._validate(failures + 1))

    def _validated(self) -> None:
        self.node.validators = [True]
        self.course.proven = True
        self._free_in(State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED)

    def _free_in(self, *states: State) -> None:
        if self.node.state in states:
            self.course.free = self._agenda.now
