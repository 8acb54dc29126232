"""What really was: every state of every object, noted in the instant in which it was written.

It is the server's journal, and looks into its store. Selections are judged here by what an object
says, not by the server's selectors.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from libs.contracts.journal import Revision
from libs.kube.client import Kube
from libs.kube.resources import NODES, PODS, Resource
from libs.kube.views import Object
from libs.runtime.clock import Clock
from libs.testing.apiserver.journal import RevisionJournal
from libs.testing.apiserver.server import ApiServer
from libs.testing.apiserver.storage.store import StoredChange
from tests.component.kube.widgets import WIDGETS

OBSERVER = "truth"
"""A user whom no fault is about."""

RESOURCES: tuple[Resource[Any], ...] = (NODES, PODS, WIDGETS)


class CacheSelection(msgspec.Struct, frozen=True, kw_only=True):
    """A selection: as the server is asked for it, and what it means."""

    name: str
    resource: Resource[Any]
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    predicate: Callable[[Any], bool] = lambda view: True
    """Of an object in that namespace."""

    def matches(self, view: Object) -> bool:
        """Whether it belongs here."""
        return self.namespace in ("", view.metadata.namespace) and self.predicate(view)


class ObjectState(msgspec.Struct, frozen=True, kw_only=True):
    """How an object was from a revision on; None is gone."""

    revision: int
    since: float
    """Monotonic."""
    view: Any


class InspectableServer(ApiServer):
    """A server whose store can be looked into in the instant of a write: all other ways take a
    turn, and then more may have been written.
    """

    def changes(self, resource: Resource[Any], *, after: int) -> list[StoredChange]:
        """What happened to objects of a kind after a revision."""
        kind = self._kinds.by_path(resource.group, resource.version, resource.plural)
        return [] if kind is None else self._store.of_kind(kind).since(after)


class StateHistory(RevisionJournal):
    """Knows every state that an object of our kinds was ever in."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._glass: InspectableServer | None = None
        self._seen = 0
        self._states: dict[str, dict[str, list[ObjectState]]] = {
            each.kind: {} for each in RESOURCES
        }

    def attach(self, glass: InspectableServer) -> None:
        """Whose journal it is."""
        self._glass = glass

    def add(self, revision: Revision) -> None:
        """Write it down, and all that it did."""
        super().add(revision)
        if self._glass is None:
            return
        # Not by the record's revision: where only the answer would tell it, there is none.
        last = self._seen
        for resource in RESOURCES:
            for change in self._glass.changes(resource, after=self._seen):
                self._note(resource, change)
                last = max(last, change.revision)
        self._seen = last

    def now(self, resource: Resource[Any]) -> list[Any]:
        """All objects of a kind."""
        states = self._states[resource.kind].values()
        return [all_of_it[-1].view for all_of_it in states if all_of_it[-1].view is not None]

    def states(self, resource: Resource[Any]) -> Iterable[tuple[str, list[ObjectState]]]:
        """Those of each object that there ever was, from the first on."""
        return self._states[resource.kind].items()

    def was(self, resource: Resource[Any], view: Object) -> bool:
        """Whether the object was ever exactly so."""
        states = self._states[resource.kind].get(view.metadata.key, [])
        return any(state.view == view for state in reversed(states))

    def _note(self, resource: Resource[Any], change: StoredChange) -> None:
        stored, now = change.after, self._clock.monotonic()
        view = None if stored is None else msgspec.json.decode(stored.raw, type=resource.view)
        state = ObjectState(revision=change.revision, since=now, view=view)
        # A key of a kind without namespaces begins with the stroke that would follow one.
        self._states[resource.kind].setdefault(change.key.removeprefix("/"), []).append(state)


async def listed(kube: Kube, part: CacheSelection) -> dict[str, Any]:
    """What the server says now belongs to the part, by key."""
    page = await kube.list_page(
        part.resource,
        namespace=part.namespace,
        labels=part.labels,
        fields=part.fields,
        limit=0,
    )
    return {view.metadata.key: view for view in page.items}
