"""How long things take in the demo: everything is there, and nothing takes minutes."""

from pathlib import Path
from typing import Final

from libs.forecast.world import ProcessEnd, SteadyWorld

SCALE: Final = "a real driver takes minutes to build and load; here everything takes seconds"


class DemoWorld(SteadyWorld, frozen=True, kw_only=True):
    """A steady world in which some drivers load nowhere: those that `bad` names by their labels."""

    bad: Path

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        """As usual, but a bad driver builds for its time and fails then."""
        usual = super().load(node, driver, attempt)
        named = self.bad.read_text().split() if self.bad.exists() else ()
        return ProcessEnd(usual.after, exit_code=1) if driver in named else usual


def demo_world(seed: int, *, bad: Path) -> DemoWorld:
    """The machines of the demo."""
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
