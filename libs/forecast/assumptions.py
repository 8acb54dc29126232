"""What a forecast assumes of machines and of the work on them, and how it says so.

Must not know what is foreseen.
"""

from typing import Protocol

from libs.forecast.words import lasting
from libs.forecast.world import Habits, History, Model, Seeded

_KINDS = {
    "load": "a driver loads",
    "validation": "a validation",
    "unload": "an unload",
    "pull": "a pull of the driver's image",
    "stop": "a pod ends",
    "job": "a job",
    "refusal": "a disruption budget refuses",
}


class Assumptions(Protocol):
    """Worlds that differ by chance alone."""

    @property
    def said(self) -> tuple[str, ...]:
        """What they are based on, for a person."""
        ...

    def world(self, seed: int) -> Model:
        """One of them; the same seed, the same world."""
        ...


class Usual:
    """What fleets are usually like, and what was seen in this one where that is enough."""

    def __init__(self, habits: Habits | None = None, history: History | None = None) -> None:
        self._habits = habits or Habits()
        self._history = history or History()

    @property
    def said(self) -> tuple[str, ...]:
        """Which durations were seen here, and which are assumed."""
        history = self._history
        seen: list[str] = []
        assumed: list[str] = []
        for kind, what in _KINDS.items():
            samples: tuple[float, ...] = getattr(history, kind)
            spread = history.rather(kind, getattr(self._habits, kind))
            about = f"{what} {lasting(spread.at(0.5))} (95 %: {lasting(spread.at(0.95))})"
            if len(samples) >= history.enough:
                seen.append(f"{about}, of {len(samples)} cases")
            else:
                assumed.append(about)
        said: list[str] = []
        if seen:
            said.append(f"Seen in this fleet: {'; '.join(seen)}.")
        if assumed:
            said.append(f"Assumed, not seen in this fleet: {'; '.join(assumed)}.")
        said.append("How often things go wrong is assumed, whatever was seen.")
        return tuple(said)

    def world(self, seed: int) -> Model:
        """A fleet with these habits."""
        return Seeded(seed, habits=self._habits, history=self._history)
