"""The world of both columns: the same durations on every node, all divided by one factor.

Durations are those of a seeded fleet without failures. Before the change of the driver everything
takes a moment, so that setting up the fleet costs little.
"""

import math
from pathlib import Path
from typing import Final

from libs.forecast.seeded_world import FleetProfile
from libs.forecast.world import RUNS_FOREVER, ProcessEnd, TimeSpan, ValidationEnd
from libs.policy.wanted import STARTUP_PROBE
from libs.testing.stage.worlds import SeededFleet

DRIVER: Final = "nvidia-driver-ctr"
WORK: Final = "work"
"""The container of a workload."""

NO_FAILURES: Final = FleetProfile(
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
"""Of a fleet with the usual durations."""

CALM: Final = "calm"
TROUBLED: Final = "troubled"
"""On the bad node the new driver never loads."""

_MOMENT: Final = 0.1
_NEW: Final = "new"
_BAD: Final = "bad"


class ScaledWorld:
    """Implements `MachineModel`; the file `stage` exists from the first change of the driver on.

    Every answer depends on the node alone, so that neither the names of workloads nor the number of
    attempts makes the columns differ.
    """

    def __init__(self, *, seed: int, factor: float, bad_node: str, stage: Path) -> None:
        self._world = SeededFleet(seed, profile=NO_FAILURES, bad_drivers=frozenset({_BAD}))
        self._factor = factor
        self._bad_node = bad_node
        self._stage = stage

    def busy_seconds(self, node: str, *, works: bool) -> float:
        """Return how long the machine itself needs for the whole upgrade of a node."""
        load = startup_probe_end(self._world.load(node, _NEW, 0)).after or 0.0
        stops = self._stop_seconds(node, DRIVER) + (self._stop_seconds(node, WORK) if works else 0)
        unload = self._world.unload(node, 0).after or 0.0
        validation = self._world.validation(node, _NEW, 0).after or 0.0
        pull = self._world.pull(node, _NEW, DRIVER).seconds or 0.0
        return (stops + unload + pull + load + validation) / self._factor

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:  # noqa: ARG002
        if container == DRIVER:
            return self._span(self._world.pull(node, _NEW, DRIVER).seconds)
        return TimeSpan(_MOMENT)

    def init(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:  # noqa: ARG002
        return ProcessEnd(_MOMENT)

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:  # noqa: ARG002
        return TimeSpan(0.0 if container == DRIVER else _MOMENT)

    def run(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:  # noqa: ARG002
        return RUNS_FOREVER

    def job(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:  # noqa: ARG002
        return RUNS_FOREVER

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:  # noqa: ARG002
        if container in (DRIVER, WORK):
            return self._span(self._stop_seconds(node, container))
        return TimeSpan(_MOMENT)

    def boot(self, node: str, attempt: int) -> TimeSpan:
        return self._span(self._world.boot(node, attempt).seconds)

    def unload(self, node: str, attempt: int) -> ProcessEnd:  # noqa: ARG002
        return self._end(self._world.unload(node, 0))

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:  # noqa: ARG002
        if node == self._bad_node and self._read_stage() == TROUBLED:
            return self._end(self._world.load(node, _BAD, attempt))
        return self._end(startup_probe_end(self._world.load(node, _NEW, 0)))

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:  # noqa: ARG002
        return ValidationEnd(self._scaled(self._world.validation(node, _NEW, 0).after))

    def refusal(self, pod: str) -> TimeSpan:  # noqa: ARG002
        return TimeSpan(0.0)

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        return self._span(self._world.eviction(pod, grace).seconds)

    def remainder(self, pod: str, age: float, kind: str = "") -> TimeSpan:
        return self._span(self._world.remainder(pod, age, kind).seconds)

    def _stop_seconds(self, node: str, container: str) -> float:
        return self._world.stop(node, container, container).seconds or 0.0

    def _span(self, seconds: float | None) -> TimeSpan:
        return TimeSpan(self._scaled(seconds))

    def _end(self, end: ProcessEnd) -> ProcessEnd:
        return ProcessEnd(self._scaled(end.after), end.exit_code)

    def _scaled(self, seconds: float | None) -> float | None:
        if seconds is None or not self._read_stage():
            return _MOMENT if seconds is not None else None
        return seconds / self._factor

    def _read_stage(self) -> str:
        return self._stage.read_text() if self._stage.exists() else ""


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
