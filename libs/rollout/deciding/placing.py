"""Where each node belongs after it was asked: among the steps, in a line, or among those that wait.

What a node was put into before is undone when it is put elsewhere. Must not know which nodes have
to be asked.
"""

from libs.contracts.waits import WaitCode
from libs.rollout.deciding.book import Book
from libs.rollout.deciding.places import Place, place
from libs.rollout.deciding.showing import returned, shown
from libs.rollout.deciding.waits import Waits
from libs.rollout.deciding.wakes import Wakes, moment
from libs.rollout.decision import Candidate, Outcome, Step, Wait
from libs.rollout.step import step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.writes import upgrading


class Row:
    """The pools of one node."""

    __slots__ = ("book", "homes", "place", "selected")

    def __init__(self) -> None:
        self.book: Book | None = None
        """By whose rules it is stepped."""
        self.homes: tuple[Book, ...] = ()
        """In which it counts."""
        self.selected: Book | None = None
        """In whose counts for people it is, and where."""
        self.place = Place.WAITING

    def enter(self, name: str, book: Book | None, homes: tuple[Book, ...]) -> None:
        """It belongs to these now."""
        self.book, self.homes = book, homes
        if book is not None:
            book.names.add(name)

    def leave(self, name: str) -> None:
        """It belongs to none of them any more."""
        if self.book is not None:
            self.book.queues.drop(name)
            self.book.names.discard(name)
            self.book.dirty = True
        self.count(None, self.place)

    def count(self, selected: Book | None, place: Place) -> None:
        """It is there now."""
        had = self.selected
        if had is selected and self.place is place:
            return
        if had is not None:
            had.places[self.place] -= 1
            had.dirty = True
        if selected is not None:
            selected.places[place] += 1
            selected.dirty = True
        self.selected, self.place = selected, place


class Placing:
    """Of all nodes."""

    def __init__(self) -> None:
        self.waits = Waits()
        self.wakes = Wakes()
        self.steps: dict[str, Step] = {}
        self.evicting: set[str] = set()
        """Nodes with evictions that are not wanted any more."""
        self._leased: set[str] = set()
        self._unsettled: set[str] = set()
        """Nodes of which a detail changes by time alone."""
        self._odd: set[str] = set()
        """Nodes that are in any of these four."""

    def restless(self, now: Instant) -> set[str]:
        """Nodes to be asked again at every decision: what was decided is not in effect."""
        names = self.steps.keys() | self._unsettled
        return names | self._leased if now.sight.away_since is not None else names

    def forget(self, name: str) -> None:
        """The node is gone."""
        self.waits.forget(name)
        self.wakes.put(name, None)
        self._forget_oddities(name)

    def place(self, node: NodeView, row: Row, now: Instant) -> None:
        """Ask for its outcome, and keep it where it belongs."""
        name, book = node.name, row.book
        if name in self._odd:
            self._forget_oddities(name)
        if book is None:
            self.waits.put(name, None, None)
            self.wakes.put(name, None)
            if node.leaving:
                self._note(self.evicting, name)
            return
        book.dirty = True
        made = book.stands
        outcome = step(node, book.stepped, now)
        self._count(node, row, outcome)
        here = outcome if outcome is None else shown(node, outcome, made, now)
        due = self._keep(node, book, here, now)
        leased = node.lease is not None and upgrading(node) is not None
        if leased:
            self._note(self._leased, name)
        if node.leaving and (made.standing.frozen or not leased):
            self._note(self.evicting, name)
        if outcome is not None and _is_stale(outcome):
            self._note(self._unsettled, name)
        for home in row.homes:
            ends = home.tally.bearing(node.uid).due
            due = ends if due is None or (ends is not None and ends < due) else due
        self.wakes.put(name, moment(node, None if node.writing else here, due, now.at))

    def _note(self, names: set[str], name: str) -> None:
        names.add(name)
        self._odd.add(name)

    def _forget_oddities(self, name: str) -> None:
        self._odd.discard(name)
        self.steps.pop(name, None)
        for names in (self._leased, self.evicting, self._unsettled):
            names.discard(name)

    def _keep(self, node: NodeView, book: Book, outcome: Outcome, now: Instant) -> float | None:
        """Where it is found when the pool grants and tells; when it is otherwise by time."""
        name = node.name
        if isinstance(outcome, Candidate):
            before, borne = self.waits.codes.get(name), book.tally.bearing(node.uid)
            asked, line = book.queues.put(
                node, outcome, borne, book.tally, before=before, now=now.at
            )
            stopped = asked.wait is not None and book.stands.stop is not None
            own = returned(book.stands, now) if stopped else asked.wait
            self.waits.put(name, own, line)
            return asked.due
        book.queues.drop(name)
        own = outcome.wait if isinstance(outcome, Step) else outcome
        if isinstance(outcome, Step) and outcome.actions and not node.writing:
            self.steps[name], own = outcome, None
            self._odd.add(name)
        self.waits.put(name, own, None)
        return None

    @staticmethod
    def _count(node: NodeView, row: Row, outcome: Outcome) -> None:
        """For people: in the pool that selects it."""
        book = row.book
        if book is not None and book.view.key == node.pool:
            row.count(book, place(node, book.view, outcome))
            return
        selected = [home for home in row.homes if home.view.key == node.pool]
        row.count(selected[0] if selected else None, Place.WAITING)


def _is_stale(outcome: Outcome) -> bool:
    """Whether it says how old a source is."""
    wait = outcome.wait if isinstance(outcome, Step) else outcome
    return isinstance(wait, Wait) and wait.code is WaitCode.STALE
