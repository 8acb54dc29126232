"""Which effects go wrong, and how: drawn by rates for each decision about a node, or as given."""

from collections import Counter

from libs.forecast.stage import EffectFault
from libs.forecast.world.distributions import draw
from tests.component.rollout.simulation.scenario import Rates, Scenario, Strike

NO_FAULT = EffectFault()


class EffectFaults:
    """Keeps count, and remembers what was met."""

    def __init__(self, scenario: Scenario) -> None:
        self._seed = scenario.seed
        self._rates: Rates | None = scenario.rates if scenario.strikes is None else None
        self._given = {
            (strike.name, strike.number): strike.fate for strike in scenario.strikes or ()
        }
        self._numbers: Counter[str] = Counter()
        self.met: list[Strike] = []

    def stop(self) -> None:
        """From now on all goes well."""
        self._rates, self._given = None, {}

    def fate(self, name: str) -> EffectFault:
        """Of the next decision about this node or pool."""
        number = self._numbers[name]
        self._numbers[name] += 1
        if self._rates is None:
            made = self._given.get((name, number), NO_FAULT)
        else:
            made = _drawn(self._rates, f"{self._seed}/{name}/{number}")
        if made is not NO_FAULT:
            self.met.append(Strike(name, number, made))
        return made


def _drawn(rates: Rates, question: str) -> EffectFault:
    dice, much = draw(question)
    for name, fate in (
        ("lost", EffectFault(lost=True)),
        ("late", EffectFault(delay=4.5 * much)),
        ("twice", EffectFault(repeat_after=10.0 * much * much)),
        ("half", EffectFault(max_actions=int(3 * much))),
        ("unanswered", EffectFault(unanswered=True)),
    ):
        rate: float = getattr(rates, name)
        if dice < rate:
            return fate
        dice -= rate
    return NO_FAULT
