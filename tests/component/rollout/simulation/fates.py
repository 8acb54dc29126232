"""Which effects go wrong, and how: drawn by rates for each decision about a node, or as given."""

from collections import Counter

from libs.forecast.stage import Fate
from libs.forecast.world.chances import drawn
from tests.component.rollout.simulation.scenario import Rates, Scenario, Strike

FINE = Fate()


class Struck:
    """Keeps count, and remembers what was met."""

    def __init__(self, scenario: Scenario) -> None:
        self._seed = scenario.seed
        self._rates: Rates | None = scenario.rates if scenario.strikes is None else None
        self._given = {
            (strike.name, strike.number): strike.fate for strike in scenario.strikes or ()
        }
        self._numbers: Counter[str] = Counter()
        self.met: list[Strike] = []

    def stops(self) -> None:
        """From now on all goes well."""
        self._rates, self._given = None, {}

    def fate(self, name: str) -> Fate:
        """Of the next decision about this node or pool."""
        number = self._numbers[name]
        self._numbers[name] += 1
        if self._rates is None:
            made = self._given.get((name, number), FINE)
        else:
            made = _drawn(self._rates, f"{self._seed}/{name}/{number}")
        if made is not FINE:
            self.met.append(Strike(name, number, made))
        return made


def _drawn(rates: Rates, question: str) -> Fate:
    dice, much = drawn(question)
    for name, fate in (
        ("lost", Fate(lost=True)),
        ("late", Fate(delay=4.5 * much)),
        ("twice", Fate(again=10.0 * much * much)),
        ("half", Fate(actions=int(3 * much))),
        ("unanswered", Fate(unanswered=True)),
    ):
        rate: float = getattr(rates, name)
        if dice < rate:
            return fate
        dice -= rate
    return FINE
