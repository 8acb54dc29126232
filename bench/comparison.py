"""What two ways of upgrading a fleet are compared by: one fleet, its jobs, and the figures.

A policy is played on a `FleetSpec` in a world (`libs.forecast.world`) and gives `Figures`. `Work`
is the jobs of one node, and the account of what they lose, so that nobody keeps it in another way.
Must not know any policy.
"""

import math
from dataclasses import dataclass

import msgspec

from libs.forecast.world import FleetProfile, ProcessEnd, WorldModel
from libs.policy.normalize import STARTUP_PROBE

CALM = FleetProfile(
    init_fails=0,
    crashes=0,
    job_fails=0,
    job_endless=0,
    ignores_stop=0,
    eviction_stuck=0,
    never_boots=0,
    unload_busy=0,
    unload_hangs=0,
    never_loads=0,
    load_fails=0,
    load_hangs=0,
    never_validates=0,
    validation_fails=0,
    validation_hangs=0,
    eviction_refused=0,
)
"""Nothing goes wrong, but things take as long as they take."""


_SCATTER = 0.618
"""Multiples of it, without their whole part, are spread evenly between 0 and 1."""


class ComparedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of equal nodes, all on an old driver, whose policy asks for a new one at time 0.

    What is called a policy's field has its meaning and its default there.
    """

    nodes: int
    gpus: int = 8
    """On each node."""
    busy: float = 0.6
    """The share of nodes with work, spread evenly over the list. When a job of theirs ends, another
    takes its place, unless the node is cordoned."""
    jobs: int = 2
    """At a time on a busy node, one pod each; they share its GPUs evenly."""
    age: float = 3600.0
    """For how many seconds the first jobs have run at time 0, at least; on other nodes than the
    first up to a checkpoint more, so that not all have just made one."""
    checkpoint: float = 3600.0
    """Seconds between two checkpoints of a job: of one that is evicted the rest is lost."""
    grace: float = 30.0
    """Of every pod, in seconds."""

    max_parallel: int = 1
    """The policy's `maxParallelUpgrades`."""
    max_unavailable: int | str | None = "25%"
    """The policy's `maxUnavailable`; None: not set."""
    wait_for_jobs: bool = False
    """Whether `waitForCompletion` selects the jobs."""
    job_timeout: float = 0.0
    """Its `timeoutSeconds`; 0: for ever."""
    eviction_timeout: float = 300.0
    """The `timeoutSeconds` of `podDeletion`; 0: for ever."""
    restart_only: bool = False
    """Whether the install digest stays what it is, so that the driver may stay loaded."""

    cordoned: frozenset[str] = frozenset()
    """Nodes that a person has cordoned; so for the next two."""
    not_ready: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    podless: dict[str, float] = {}
    """Nodes without a driver pod, and until when: a node that joins, or one that cannot get it."""

    @property
    def names(self) -> list[str]:
        """In the order in which an API server lists them."""
        return [f"node-{number:05d}" for number in range(self.nodes)]

    def is_busy(self, number: int) -> bool:
        """Whether the node with this number is a busy one."""
        return int((number + 1) * self.busy) > int(number * self.busy)


class UpgradeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. Times are in seconds, and counted from the change of the policy."""

    nodes: int
    done: int
    """On the new driver, and in service as far as the policy is concerned."""
    failed: int
    waiting: int
    """Neither; nodes that people have excluded are not among them."""
    unproven: int
    """Of those done: put into service although no validation of that driver instance had passed."""

    lasted: float
    """Until the last node changed its state."""
    idle: float
    """Per node that was started: time in which it was taken up and nothing but the policy's own
    next look was waited for."""

    reads: float
    """Requests to the API server per node: get and list."""
    writes: float
    """Patch, delete, evict, those that were refused included; Events are apart."""
    events: float

    commands: float = 0.0
    """Per node, of those that are sent on a bus rather than through the API server."""

    evictions: int
    refusals: int
    """Requests for an eviction that a disruption budget refused."""
    gpu_hours_idle: float
    """Cordoned on the policy's account, and no job on the GPU."""
    gpu_hours_redone: float
    """That evicted jobs compute for the second time."""

    harmed: int
    """Nodes whose old driver was taken away and on which the new one does not work at the end."""
    started_for: float | None
    """From the first start to the last; None: nothing was started."""
    named_after: float | None
    """From the first start until a node was first said to have failed; None: none was."""

    @property
    def makespan(self) -> float | None:
        """Until every node was done or had failed; None: it never came to that."""
        return None if self.waiting else self.lasted

    @property
    def gpu_hours_lost(self) -> float:
        """Both kinds."""
        return self.gpu_hours_idle + self.gpu_hours_redone


@dataclass(slots=True, frozen=True)
class ComputeJob:
    """One pod that computes; without an end it runs until somebody ends it."""

    pod: str
    slot: int
    """Its place on the node; there the next comes."""
    began: float
    ends: float | None


class NodeJobs:
    """The jobs of one node. Calls come in the order of time."""

    __slots__ = (
        "_counts",
        "_fleet",
        "_node",
        "_open",
        "_seen",
        "_share",
        "_slots",
        "_world",
        "emptied",
        "idle",
        "redone",
        "running",
    )

    def __init__(self, node: str, number: int, *, fleet: ComparedFleet, world: WorldModel) -> None:
        self.idle = 0.0
        """GPU-seconds, as in the figures."""
        self.redone = 0.0
        self.emptied = 0.0
        """When a job last ended and none came in its place."""
        self._node = node
        self._fleet = fleet
        self._world = world
        self._seen = 0.0
        self._open = node not in fleet.cordoned
        self._slots = fleet.jobs if fleet.is_busy(number) and self._open else 0
        self._share = fleet.gpus / max(1, self._slots)
        self._counts = [0] * self._slots
        age = fleet.age + fleet.checkpoint * (number * _SCATTER % 1.0)
        self.running = [self._new(slot, -age, age=age) for slot in range(self._slots)]

    def settle(self, now: float) -> None:
        """Let end what has ended by now, and, on an open node, let the next begin in its place."""
        now = max(now, self._seen)
        left: list[ComputeJob] = []
        used = 0.0
        for started in self.running:
            job: ComputeJob | None = started
            while job is not None and job.ends is not None and job.ends <= now:
                used += self._share * (job.ends - max(self._seen, job.began))
                job = self._new(job.slot, job.ends) if self._open else None
            if job is None:
                self.emptied = max(self.emptied, started.ends or 0.0)
            else:
                used += self._share * (now - max(self._seen, job.began))
                left.append(job)
        if not self._open and self._node not in self._fleet.cordoned:
            self.idle += self._fleet.gpus * (now - self._seen) - used
        self.running, self._seen = left, now

    def close(self, now: float) -> None:
        """The node is cordoned by the policy."""
        self.settle(now)
        self._open = False

    def open(self, now: float) -> None:
        """The node is schedulable again, and work comes at once where there was some."""
        self.settle(now)
        self._open = True
        taken = {job.slot for job in self.running}
        empty = [slot for slot in range(self._slots) if slot not in taken]
        self.running += [self._new(slot, now) for slot in empty]

    def evict(self, job: ComputeJob, now: float) -> None:
        """Its pod is gone, and what it had computed since its last checkpoint is lost."""
        self.settle(now)
        if job in self.running:
            self.running.remove(job)
            self.redone += self._share * ((now - job.began) % self._fleet.checkpoint)

    def _new(self, slot: int, began: float, *, age: float = 0.0) -> ComputeJob:
        """The same job for every policy: the next one of this place on this node."""
        pod = f"jobs/{self._node}-{slot}-{self._counts[slot]}"
        self._counts[slot] += 1
        left = self._world.remainder(pod, age).seconds
        return ComputeJob(pod, slot, began, None if left is None else began + age + left)


def startup_probe_end(load: ProcessEnd) -> ProcessEnd:
    """Return the end of a driver's start as its startup probe sees it; exit code 0 means ready.

    The kubelet kills a container whose probe never succeeds.
    """
    delay = float(STARTUP_PROBE.initial_delay_seconds or 0)
    period = float(STARTUP_PROBE.period_seconds or 1)
    deadline = delay + period * (STARTUP_PROBE.failure_threshold or 1)
    if load.after is None or load.after > deadline:
        return ProcessEnd(deadline, 1)
    if load.exit_code:
        return load
    probes = max(0, math.ceil((load.after - delay) / period))
    return ProcessEnd(delay + probes * period)
