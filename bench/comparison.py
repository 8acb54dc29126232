"""The common part of the comparison of two upgrade engines: fleet, jobs and figures.

An engine is played on a `ComparedFleet` in a world (`libs.forecast.world`); the result is
`UpgradeFigures`. `NodeJobs` accounts for the lost work of both engines in the same way.
"""

import math
from dataclasses import dataclass

import msgspec

from libs.forecast.seeded_world import FleetProfile
from libs.forecast.world import ProcessEnd, WorldModel
from libs.policy.wanted import STARTUP_PROBE

CALM = FleetProfile(
    crashes=0,
    job_endless=0,
    ignores_stop=0,
    eviction_stuck=0,
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
"""A world without failures, with the usual durations."""


_SCATTER = 0.618
"""Spreads values: the fractional parts of its multiples are even between 0 and 1."""


class ComparedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of equal nodes on an old driver, whose policy asks for a new one at time 0."""

    nodes: int
    gpus: int = 8
    """GPUs per node."""
    busy: float = 0.6
    """The share of nodes with work, spread evenly over the list. When a job on them ends,
    another follows, unless the node is cordoned."""
    jobs: int = 2
    """Jobs at a time on a busy node, one pod each; they share its GPUs evenly."""
    age: float = 3600.0
    """Seconds that the first jobs have run at time 0, plus up to a checkpoint on later nodes, so
    that checkpoints differ between nodes."""
    checkpoint: float = 3600.0
    """Seconds between two checkpoints of a job; an eviction loses the work since the last one."""
    grace: float = 30.0
    """Grace period of every pod, in seconds."""

    request: float = 0.005
    """Assumed: seconds per request of the incumbent to the API server, without a rate limit."""

    max_parallel: int = 1
    """The policy's `maxParallelUpgrades`."""
    max_unavailable: int | str | None = "25%"
    """The policy's `maxUnavailable`; None: not set."""
    wait_for_jobs: bool = False
    """Whether `waitForCompletion` selects the jobs."""
    job_timeout: float = 0.0
    """The `timeoutSeconds` of `waitForCompletion`; 0: no limit."""
    eviction_timeout: float = 300.0
    """The `timeoutSeconds` of `podDeletion`; 0: no limit."""
    restart_only: bool = False
    """Whether the install digest is unchanged, so that the driver may stay loaded."""

    cordoned: frozenset[str] = frozenset()
    """Nodes cordoned by a person."""
    not_ready: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    podless: dict[str, float] = {}
    """Nodes without a driver pod, and the time until when: new nodes, or nodes that get no pod."""

    @property
    def names(self) -> list[str]:
        """The nodes in the order of the API server."""
        return [f"node-{number:05d}" for number in range(self.nodes)]

    def is_busy(self, number: int) -> bool:
        return int((number + 1) * self.busy) > int(number * self.busy)


class UpgradeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rollout. Times are in seconds since the change of the policy."""

    nodes: int
    done: int
    """Nodes on the new driver and released."""
    failed: int
    waiting: int
    """Nodes neither done nor failed, without those that people excluded."""
    unproven: int
    """Nodes done without a passed validation of the driver instance."""

    lasted: float
    """The time of the last change of a state."""
    idle: float
    """Per started node: the time in which it only waited for the engine's next pass."""

    reads: float
    """Requests to the API server per node: get and list."""
    writes: float
    """Patches, deletions and evictions per node, including refused ones, without Events."""
    events: float

    commands: float = 0.0
    """Commands per node that are sent on a bus instead of through the API server."""

    evictions: int
    refusals: int
    """Evictions refused by a disruption budget."""
    gpu_hours_idle: float
    """GPU hours without a job on nodes cordoned for the upgrade."""
    gpu_hours_redone: float
    """GPU hours that evicted jobs compute again."""

    harmed: int
    """Nodes that lost the old driver and do not run the new one at the end."""
    started_for: float | None
    """From the first start to the last; None without starts."""
    named_after: float | None
    """From the first start to the first reported failure; None without failures."""
    done_after: float | None = None
    """The time at which the last of the done nodes was done; only of the incumbent."""
    failed_after: float | None = None
    """From a node's start to the report of its failure, the shortest; only of the incumbent."""

    @property
    def makespan(self) -> float | None:
        """Until every node was done or had failed; None if some still wait."""
        return None if self.waiting else self.lasted

    @property
    def gpu_hours_lost(self) -> float:
        return self.gpu_hours_idle + self.gpu_hours_redone


@dataclass(slots=True, frozen=True)
class ComputeJob:
    """A pod that computes; without an end it runs until it is evicted."""

    pod: str
    slot: int
    """The slot on the node, which the next job takes over."""
    began: float
    ends: float | None


class NodeJobs:
    """The jobs of one node; calls must be in the order of time."""

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
        """Idle GPU-seconds."""
        self.redone = 0.0
        self.emptied = 0.0
        """When a job last ended without a successor."""
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
        """End the jobs that are over, and start their successors on an open node."""
        now = max(now, self._seen)
        running: list[ComputeJob] = []
        busy = 0.0
        for started in self.running:
            job: ComputeJob | None = started
            while job is not None and job.ends is not None and job.ends <= now:
                busy += self._share * (job.ends - max(self._seen, job.began))
                job = self._new(job.slot, job.ends) if self._open else None
            if job is None:
                self.emptied = max(self.emptied, started.ends or 0.0)
            else:
                busy += self._share * (now - max(self._seen, job.began))
                running.append(job)
        if not self._open and self._node not in self._fleet.cordoned:
            self.idle += self._fleet.gpus * (now - self._seen) - busy
        self.running, self._seen = running, now

    def close(self, now: float) -> None:
        """Cordon the node for the upgrade."""
        self.settle(now)
        self._open = False

    def open(self, now: float) -> None:
        """Uncordon the node, and fill its empty slots."""
        self.settle(now)
        self._open = True
        taken = {job.slot for job in self.running}
        empty = [slot for slot in range(self._slots) if slot not in taken]
        self.running += [self._new(slot, now) for slot in empty]

    def evict(self, job: ComputeJob, now: float) -> None:
        """Remove a job, and count the work since its last checkpoint as lost."""
        self.settle(now)
        if job in self.running:
            self.running.remove(job)
            self.redone += self._share * ((now - job.began) % self._fleet.checkpoint)

    def _new(self, slot: int, began: float, *, age: float = 0.0) -> ComputeJob:
        """Return the next job of a slot, which is the same for every engine."""
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
