"""Print figures and check them against their budgets."""

import statistics
from collections.abc import Sequence


class BenchReport:
    """Prints figures and collects the names of those over their budgets."""

    def __init__(self) -> None:
        self._over: list[str] = []

    def figure(self, name: str, value: float, unit: str, *, note: str = "") -> None:
        """Print a figure without a budget."""
        print(f"  {name:<52} {value:10.2f} {unit:<6} {note}".rstrip(), flush=True)

    def compare(self, name: str, theirs: float | str, ours: float | str, unit: str = "") -> None:
        """Print two figures or words side by side."""
        values = (item if isinstance(item, str) else f"{item:.2f}" for item in (theirs, ours))
        columns = "".join(f"{value:>14}" for value in values)
        print(f"  {name:<52}{columns} {unit}".rstrip(), flush=True)

    def at_most(self, name: str, value: float, budget: float, unit: str, *, note: str = "") -> None:
        """Print a figure with an upper limit."""
        self._check(name, value, unit, f"<= {budget:g}", over=value > budget, note=note)

    def at_least(
        self, name: str, value: float, budget: float, unit: str, *, note: str = ""
    ) -> None:
        """Print a figure with a lower limit."""
        self._check(name, value, unit, f">= {budget:g}", over=value < budget, note=note)

    def _check(
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
        """Print the figures over their budgets, and return the exit status."""
        if self._over:
            print(f"over budget: {', '.join(self._over)}")
        return 1 if self._over else 0


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the ratio of the medians."""
    return statistics.median(ours) / statistics.median(theirs)
