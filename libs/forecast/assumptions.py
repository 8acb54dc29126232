"""The assumptions of a forecast about machines and workloads, and their description."""

from typing import Protocol

from libs.forecast.text import format_duration
from libs.forecast.world import DurationHistory, FleetProfile, SeededWorld, WorldModel

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
    """Worlds that differ by seed only."""

    @property
    def basis(self) -> tuple[str, ...]:
        """Return the sources of the figures, for people."""
        ...

    def world(self, seed: int) -> WorldModel:
        """Return the world of this seed."""
        ...


class DefaultAssumptions:
    """The profile of a usual fleet, with enough observed durations in place of assumed ones."""

    def __init__(
        self, profile: FleetProfile | None = None, history: DurationHistory | None = None
    ) -> None:
        self._profile = profile or FleetProfile()
        self._history = history or DurationHistory()

    @property
    def basis(self) -> tuple[str, ...]:
        history = self._history
        seen: list[str] = []
        assumed: list[str] = []
        for kind, label in _KINDS.items():
            samples: tuple[float, ...] = getattr(history, kind)
            distribution = history.distribution(kind, getattr(self._profile, kind))
            median, high = distribution.quantile(0.5), distribution.quantile(0.95)
            about = f"{label} {format_duration(median)} (95 %: {format_duration(high)})"
            if len(samples) >= history.min_samples:
                seen.append(f"{about}, of {len(samples)} cases")
            else:
                assumed.append(about)
        sentences: list[str] = []
        if seen:
            sentences.append(f"Seen in this fleet: {'; '.join(seen)}.")
        if assumed:
            sentences.append(f"Assumed, not seen in this fleet: {'; '.join(assumed)}.")
        sentences.append("How often things go wrong is assumed, whatever was seen.")
        return tuple(sentences)

    def world(self, seed: int) -> WorldModel:
        return SeededWorld(seed, profile=self._profile, history=self._history)
