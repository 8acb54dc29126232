"""The world of the demo: how long things take on its machines, and what fails there."""

from pathlib import Path
from typing import Final

from libs.forecast.world import RUNS_FOREVER, ProcessEnd
from libs.testing.stage.worlds import SteadyWorld

SCALE: Final = "A real driver takes minutes to build and load; here everything takes seconds."
TOLD_JOB: Final = "train"
"""The job that ends when the scenario says so. Other jobs take their time."""
BACK_OFF: Final = 0.15
"""The kubelet's back-off before it starts a failed container again, as a share of the usual one."""
_GIVES_UP: Final = 0.4
"""When a bad driver gives up, as a share of the time in which others load."""


class DemoWorld(SteadyWorld, frozen=True, kw_only=True):
    """A steady world in which the drivers whose labels the file `bad` lists fail to load."""

    bad: Path

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        end = super().load(node, driver, attempt)
        bad_drivers = self.bad.read_text().split() if self.bad.exists() else ()
        if driver not in bad_drivers or end.after is None:
            return end
        return ProcessEnd(_GIVES_UP * end.after, exit_code=1)

    def job(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        told = workload == TOLD_JOB
        return RUNS_FOREVER if told else super().job(node, workload, container, attempt)


def demo_world(seed: int, *, bad: Path, speed: float = 1.0) -> DemoWorld:
    """Return a world in which everything takes seconds instead of minutes."""
    return DemoWorld(
        seed=seed,
        bad=bad,
        jitter=0.5,
        pull_seconds=1.0 / speed,
        init_seconds=0.5 / speed,
        ready_seconds=0.5 / speed,
        stop_seconds=1.0 / speed,
        job_seconds=25.0 / speed,
        unload_seconds=1.0 / speed,
        load_seconds=4.0 / speed,
        validation_seconds=2.0 / speed,
        boot_seconds=10.0 / speed,
    )
