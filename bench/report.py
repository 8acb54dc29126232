"""Figures, and whether they are within their budgets."""

import statistics
from collections.abc import Sequence


class BenchReport:
    """Prints each figure as it comes, and remembers those that are over."""

    def __init__(self) -> None:
        self._over: list[str] = []

    def figure(self, name: str, value: float, unit: str, *, note: str = "") -> None:
        """A figure without a budget."""
        print(f"  {name:<52} {value:10.2f} {unit:<6} {note}".rstrip(), flush=True)

    def compare(self, name: str, theirs: float | str, ours: float | str, unit: str = "") -> None:
        """Two figures of one thing, or two words."""
        shown = (each if isinstance(each, str) else f"{each:.2f}" for each in (theirs, ours))
        columns = "".join(f"{each:>14}" for each in shown)
        print(f"  {name:<52}{columns} {unit}".rstrip(), flush=True)

    def at_most(self, name: str, value: float, budget: float, unit: str, *, note: str = "") -> None:
        """A figure that must not be greater than its budget."""
        self._judged(name, value, unit, f"<= {budget:g}", over=value > budget, note=note)

    def at_least(
        self, name: str, value: float, budget: float, unit: str, *, note: str = ""
    ) -> None:
        """A figure that must not be less than its budget."""
        self._judged(name, value, unit, f">= {budget:g}", over=value < budget, note=note)

    def _judged(
        self, name: str, value: float, unit: str, budget: str, *, over: bool, note: str
    ) -> None:
        verdict = "OVER" if over else "ok"
        print(
            f"  {name:<52} {value:10.2f} {unit:<6} {budget:<9} {verdict:<4} {note}".rstrip(),
            flush=True,
        )
        if over:
            self._over.append(name)

    def close(self) -> int:
        """The exit code."""
        if self._over:
            print(f"over budget: {', '.join(self._over)}")
        return 1 if self._over else 0


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Of medians, taken in turns within one run."""
    return statistics.median(ours) / statistics.median(theirs)
