"""How long things take in the demo: seconds instead of minutes."""

from pathlib import Path
from typing import Final

from libs.forecast.world import ProcessEnd
from libs.testing.stage.worlds import SteadyWorld

SCALE: Final = "A real driver takes minutes to build and load; here everything takes seconds."


class DemoWorld(SteadyWorld, frozen=True, kw_only=True):
    """A steady world in which the drivers whose labels the file `bad` lists fail to load."""

    bad: Path

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        usual = super().load(node, driver, attempt)
        bad_drivers = self.bad.read_text().split() if self.bad.exists() else ()
        return ProcessEnd(usual.after, exit_code=1) if driver in bad_drivers else usual


def demo_world(seed: int, *, bad: Path) -> DemoWorld:
    return DemoWorld(
        seed=seed,
        bad=bad,
        jitter=0.5,
        pull_seconds=1.0,
        init_seconds=0.5,
        ready_seconds=0.5,
        stop_seconds=1.0,
        job_seconds=25.0,
        unload_seconds=1.0,
        load_seconds=5.0,
        validation_seconds=2.0,
        boot_seconds=10.0,
    )
