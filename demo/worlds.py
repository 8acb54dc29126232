"""How long things take in the demo: everything is there, and nothing takes minutes."""

from pathlib import Path
from typing import Final

from libs.forecast.world import Ending, Steady

SCALE: Final = "a real driver takes minutes to build and load; here everything takes seconds"


class World(Steady, frozen=True, kw_only=True):
    """A steady world in which some drivers load nowhere: those that `bad` names by their labels."""

    bad: Path

    def load(self, node: str, driver: str, attempt: int) -> Ending:
        """As usual, but a bad driver builds for its time and fails then."""
        usual = super().load(node, driver, attempt)
        named = self.bad.read_text().split() if self.bad.exists() else ()
        return Ending(usual.after, exit_code=1) if driver in named else usual


def world(seed: int, *, bad: Path) -> World:
    """The machines of the demo."""
    return World(
        seed=seed,
        bad=bad,
        spread=0.5,
        pulling=1.0,
        preparing=0.5,
        starting=0.5,
        stopping=1.0,
        working=25.0,
        unloading=1.0,
        loading=5.0,
        validating=2.0,
        booting=10.0,
    )
