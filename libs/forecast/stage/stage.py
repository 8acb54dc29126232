"""A stage: a small cluster in memory and virtual time, on which decisions are carried out.

It lives on by a `world.Model`: whoever decides looks at `fleet` and `instant`, hands over what he
decided, and lets time pass. Nothing here decides anything about a rollout, and nothing is random:
the same stage with the same decisions is the same story.
"""

from collections.abc import Iterable
from typing import NamedTuple

from libs.contracts.records import Journal
from libs.forecast.stage import driving, effects, nodes, seeing, validating, witnessing
from libs.forecast.stage.agenda import Due
from libs.forecast.stage.pace import Pace
from libs.forecast.stage.plans import NodePlan
from libs.forecast.stage.setting import furnish
from libs.forecast.stage.snapshot import furnish_from
from libs.forecast.stage.state import State
from libs.forecast.world import Model
from libs.rollout.decision import Decision
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView


class Changed(NamedTuple):
    """What is another one than when it was last asked."""

    nodes: frozenset[str]
    """Names; also of nodes that are gone."""
    pools: frozenset[str]
    """Keys."""


class News(NamedTuple):
    """Views of what changed, as `Deciding.update` takes them."""

    nodes: tuple[NodeView, ...]
    nodes_gone: tuple[str, ...]
    pools: tuple[PoolView, ...]


class Stage:
    """One of them. `copy` makes another that goes its own way from here."""

    def __init__(
        self,
        pools: Iterable[PoolView] = (),
        nodes: Iterable[NodePlan] = (),
        *,
        world: Model,
        start: float = 0.0,
        pace: Pace = Pace(),  # noqa: B008 - frozen
        journalled: bool = True,
    ) -> None:
        self.state = State(world=world, start=start, pace=pace, journalled=journalled)
        self._equip()
        furnish(self.state, pools, nodes)

    @classmethod
    def of(cls, fleet: Fleet, *, world: Model, now: float) -> "Stage":
        """The cluster that a snapshot shows, as far as it shows it."""
        made = cls(world=world, start=now, journalled=False)
        furnish_from(made.state, fleet)
        return made

    def _equip(self) -> None:
        self._nodes = dict[str, NodeView]()
        self._pools = dict[str, PoolView]()
        self.state.watchers = (nodes.watch,)
        self.state.minders = (driving.look, validating.look)
        if self.state.chronicle is not None:
            self.state.watchers += (witnessing.watch,)
            self.state.minders += (witnessing.look,)

    # What is seen.

    @property
    def now(self) -> float:
        """Seconds."""
        return self.state.now

    def fleet(self) -> Fleet:
        """All views; of what did not change the very same as before."""
        self._renew()
        return Fleet(pools=self._pools.copy(), nodes=self._nodes.copy())

    def node(self, name: str) -> NodeView | None:
        """One of them."""
        self._renew()
        return self._nodes.get(name)

    def pool(self, key: str) -> PoolView:
        """The view of a pool."""
        self._renew()
        return self._pools[key]

    def news(self) -> News:
        """The views of all that changed since this was asked last, by whomever."""
        names = self.state.hushed | self.state.dirty
        keys = self.state.hushed_pools | self.state.dirty_pools
        self.changed()
        self._renew()
        return News(
            nodes=tuple(self._nodes[name] for name in names if name in self._nodes),
            nodes_gone=tuple(name for name in names if name not in self._nodes),
            pools=tuple(self._pools[key] for key in keys),
        )

    def _renew(self) -> None:
        state = self.state
        for name in state.restale:
            view = seeing.node_view(state, name)
            if view is None:
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = view
        for name in state.reknown - state.restale:
            if name in self._nodes:
                self._nodes[name] = seeing.known_anew(state, self._nodes[name])
        state.restale.clear()
        state.reknown.clear()
        for key in state.restale_pools:
            self._pools[key] = seeing.pool_view(state, key)
        state.restale_pools.clear()

    def instant(self, epoch: int | None = None) -> Instant:
        """Now, as the leader of that epoch sees it; without one, of the present leader."""
        return seeing.instant(self.state, self.epoch if epoch is None else epoch)

    def changed(self) -> Changed:
        """Since this was asked last, but for what a decision itself brings about."""
        state = self.state
        state.hushed.clear()
        state.hushed_pools.clear()
        made = Changed(frozenset(state.dirty), frozenset(state.dirty_pools))
        state.dirty.clear()
        state.dirty_pools.clear()
        return made

    # What is done, and what happens then.

    def carry_out(
        self,
        decision: Decision,
        fates: effects.Fates | None = None,
        *,
        rested: Iterable[str] | None = None,
        leader: int | None = None,
    ) -> None:
        """Begin to; `fates` are the faults that its effects meet.

        `rested` are the nodes that wait no more, of a decision that tells only what is new; without
        it all that it does not name. `leader` is the number of another than the present one.
        """
        if leader is not None and leader != self.state.leader:
            effects.send(self.state, decision, leader, fates)
        else:
            effects.carry_out(self.state, decision, fates, rested)

    @property
    def next(self) -> float | None:
        """When something happens next; None: nothing ever does, unless somebody acts."""
        return self.state.agenda.next

    def advance(self) -> float:
        """To the next moment at which something happens, with all that happens then."""
        at = self.state.agenda.next
        if at is not None:
            self.until(at)
        return self.state.now

    def until(self, time: float) -> None:
        """To that time, with all that happens on the way."""
        state = self.state
        while (at := state.agenda.next) is not None and at <= time:
            due = state.agenda.pop()
            state.now = max(state.now, at)
            due.what(state, *due.values)
        state.now = max(state.now, time)

    # What can be judged, and told.

    def journal(self) -> Journal:
        """What an audit reads; of a stage without a chronicle nothing is known."""
        chronicle = self.state.chronicle
        return witnessing.journal(chronicle) if chronicle is not None else Journal()

    @property
    def violations(self) -> tuple[tuple[float, str, str], ...]:
        """What must never happen on a machine, and did: when, where, what."""
        return tuple(self.state.violations)

    @property
    def story(self) -> tuple[tuple[float, str], ...]:
        """What happened, for people."""
        chronicle = self.state.chronicle
        return tuple(chronicle.story) if chronicle is not None else ()

    # For whoever tries every order of events.

    def pending(self) -> tuple[Due, ...]:
        """All that is to happen."""
        return self.state.agenda.pending()

    def happen(self, due: Due) -> None:
        """This now, and all earlier things later; time does not run backwards."""
        state = self.state
        state.agenda.take(due)
        state.now = max(state.now, due.at)
        due.what(state, *due.values)

    def copy(self) -> "Stage":
        """Another one, in the same state."""
        made = object.__new__(Stage)
        made.state = self.state.copy()
        made._nodes = self._nodes.copy()
        made._pools = self._pools.copy()
        return made

    # Who leads.

    @property
    def epoch(self) -> int:
        """Of the present leader."""
        return self.state.epoch

    def elect(self) -> int:
        """Another process leads: it knows nothing that is not on the stage itself."""
        return effects.elect(self.state)
