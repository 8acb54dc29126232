"""A cache under judgement: what it told is replayed, and held against what really was."""

from collections.abc import Callable
from typing import Any

from libs.kube.cache import Cache
from libs.kube.indexed_store import revision_of
from libs.kube.views import Object
from tests.component.kube_storms.state_history import CacheSelection, ObjectState, StateHistory

ROUNDING = 1e-6
"""Seconds by which a difference of two times may be wrong."""


class CacheChecker:
    """Listens to one cache; `wrong` is what must never have been."""

    def __init__(self, part: CacheSelection, cache: Cache[Any], truth: StateHistory) -> None:
        self.part = part
        self.cache = cache
        self._truth = truth
        self.replayed: dict[str, Any] = {}
        self.violations: list[str] = []
        self._newest: dict[str, int] = {}
        cache.on_change(self._told)

    @property
    def held(self) -> dict[str, Any]:
        """What the cache holds, by key."""
        return {view.metadata.key: view for view in self.cache}

    def missing(self, *, revision: int) -> list[str]:
        """What was written up to that revision and is not in the cache."""
        return self._missing(lambda state: state.revision <= revision)

    def overdue(self, *, now: float) -> list[str]:
        """What was written earlier than the cache says it is old, and is not in it."""
        proven = now - self.cache.age - ROUNDING
        return self._missing(lambda state: state.since < proven)

    def _missing(self, due: Callable[[ObjectState], bool]) -> list[str]:
        return [
            f"{self.part.name}: {key} of revision {states[place].revision}"
            for key, states in self._truth.states(self.part.resource)
            if (place := _last(states, due)) is not None and self._lacks(key, states[place:])
        ]

    def _lacks(self, key: str, states: list[ObjectState]) -> bool:
        """Whether what is held is older than the first of these states."""
        view = self.cache.get(key)
        if view is not None:
            return revision_of(view) < states[0].revision
        return all(state.view and self.part.matches(state.view) for state in states)

    def _told(self, old: Object | None, new: Object | None) -> None:
        view = new or old
        assert view is not None
        key = view.metadata.key
        if self.replayed.get(key) != old:
            self._blame(key, "what it is said to have been was not told before")
        if new is None:
            self.replayed.pop(key, None)
            return
        self.replayed[key] = new
        if revision_of(new) <= self._newest.get(key, 0):
            self._blame(key, f"went from {self._newest[key]} to {revision_of(new)}")
        self._newest[key] = max(self._newest.get(key, 0), revision_of(new))
        if not self.part.matches(new):
            self._blame(key, "does not belong here")
        if not self._truth.was(self.part.resource, new):
            self._blame(key, "was never so")

    def _blame(self, key: str, why: str) -> None:
        self.violations.append(f"{self.part.name}: {key}: {why}")


def _last(states: list[ObjectState], due: Callable[[ObjectState], bool]) -> int | None:
    for place in range(len(states) - 1, -1, -1):
        if due(states[place]):
            return place
    return None
