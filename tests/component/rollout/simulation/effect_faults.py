"""Faults of effects: drawn at given rates for each decision about a node or pool, or listed."""

from collections import Counter

import msgspec

from libs.forecast.seeded_world import draw
from libs.testing.stage import EffectFault

NO_FAULT = EffectFault()


class EffectFaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """The share of decisions whose effects fail in each way."""

    lost: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    half: float = 0.0
    unanswered: float = 0.0


class NumberedFault(msgspec.Struct, frozen=True):
    """A fault in the effects of the n-th decision about a node or pool."""

    name: str
    number: int
    fault: EffectFault


class EffectFaults:
    """Choose the fault of each decision's effects and record those that were applied."""

    def __init__(
        self, seed: int, rates: EffectFaultRates, listed: tuple[NumberedFault, ...] | None
    ) -> None:
        self._seed = seed
        self._rates: EffectFaultRates | None = rates if listed is None else None
        self._listed = {(one.name, one.number): one.fault for one in listed or ()}
        self._numbers: Counter[str] = Counter()
        self.applied: list[NumberedFault] = []

    def stop(self) -> None:
        self._rates, self._listed = None, {}

    def next_fault(self, name: str) -> EffectFault:
        """Return the fault for the next decision about this node or pool."""
        number = self._numbers[name]
        self._numbers[name] += 1
        if self._rates is None:
            fault = self._listed.get((name, number), NO_FAULT)
        else:
            fault = _drawn_fault(self._rates, f"{self._seed}/{name}/{number}")
        if fault is not NO_FAULT:
            self.applied.append(NumberedFault(name, number, fault))
        return fault


def _drawn_fault(rates: EffectFaultRates, question: str) -> EffectFault:
    dice, amount = draw(question)
    for name, fault in (
        ("lost", EffectFault(lost=True)),
        ("late", EffectFault(delay=4.5 * amount)),
        ("twice", EffectFault(repeat_after=10.0 * amount * amount)),
        ("half", EffectFault(max_actions=int(3 * amount))),
        ("unanswered", EffectFault(unanswered=True)),
    ):
        rate: float = getattr(rates, name)
        if dice < rate:
            return fault
        dice -= rate
    return NO_FAULT
