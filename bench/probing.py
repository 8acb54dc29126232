"""The world as both policies meet it: a driver is ready when its startup probe has seen that.

Both render the same probe. That a driver ends some time after it was ready is left out for both.
Must not know any policy.
"""

import math
from dataclasses import dataclass

from libs.forecast.world import RUNS_FOREVER, ProcessEnd, TimeSpan, ValidationEnd, WorldModel

PROBE_DELAY = 60.0
PROBE_PERIOD = 10.0
PROBE_FAILURES = 120
"""Of the startup probe. A driver is never ready before the delay, and killed after all of them."""

LONGEST = PROBE_DELAY + PROBE_FAILURES * PROBE_PERIOD


def probed(load: ProcessEnd) -> ProcessEnd:
    """How a start of the driver's container ends, as its probe sees it; exit code 0: it is ready.

    Always in some time: what hangs is killed.
    """
    if load.after is None or load.after > LONGEST:
        return ProcessEnd(LONGEST, 1)
    if load.exit_code:
        return load
    looks = max(0, math.ceil((load.after - PROBE_DELAY) / PROBE_PERIOD))
    return ProcessEnd(PROBE_DELAY + looks * PROBE_PERIOD)


@dataclass(frozen=True, slots=True)
class Probed:
    """Another world, in which loading is over when the probe says so."""

    world: WorldModel
    stays: str = ""
    """A container whose driver stays loaded, so that it only has to get ready; empty: none is."""

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:
        """As there; so for what is not about a driver's start."""
        return self.world.pull(node, workload, container)

    def init(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        """As there."""
        return self.world.init(node, workload, container, attempt)

    def ready(self, *_: object, **__: object) -> TimeSpan:
        """At once, for the probe has said so."""
        return TimeSpan(0.0)

    def run(self, *_: object, **__: object) -> ProcessEnd:
        """For ever."""
        return RUNS_FOREVER

    def job(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        """As there."""
        return self.world.job(node, workload, container, attempt)

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        """As there."""
        return self.world.stop(node, workload, container)

    def boot(self, node: str, attempt: int) -> TimeSpan:
        """As there."""
        return self.world.boot(node, attempt)

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        """As there."""
        return self.world.unload(node, attempt)

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        """Until the probe is content."""
        if self.stays:
            return probed(ProcessEnd(self.world.ready(node, driver, self.stays, attempt).seconds))
        return probed(self.world.load(node, driver, attempt))

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        """As there."""
        return self.world.validation(node, driver, attempt)

    def refusal(self, pod: str) -> TimeSpan:
        """As there."""
        return self.world.refusal(pod)

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        """As there."""
        return self.world.eviction(pod, grace)

    def remainder(self, pod: str, age: float) -> TimeSpan:
        """As there."""
        return self.world.remainder(pod, age)
