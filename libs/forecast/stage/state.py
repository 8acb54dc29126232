"""Everything that a stage is at one moment, and what each part of it needs of the others.

Holds objects and the agenda, counts revisions and uids, remembers what changed. Must not know what
happens to anything: that is in the modules that are given a state.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

from libs.forecast.stage.agenda import Agenda, What
from libs.forecast.stage.chronicle import Chronicle
from libs.forecast.stage.objects import (
    Known,
    Machine,
    Node,
    Pool,
    Reported,
    Slot,
    copied,
)
from libs.forecast.stage.pace import Pace
from libs.forecast.world import Model
from libs.rollout.views.fleet import Source

Watcher = Callable[["State", str, frozenset[str]], None]
"""Is told the name of a Node, and the paths that changed."""
Minder = Callable[["State", Machine], None]
"""Looks at a machine on which something happened, and does what is to be done now."""

SOURCES = ("nodes", "pods", "rollouts", "policies", "daemonsets")


class State:
    """What functions of this package are given first."""

    def __init__(self, *, world: Model, start: float, pace: Pace, journalled: bool) -> None:
        self.now = start
        self.world = world
        self.pace = pace
        self.agenda = Agenda()
        self.revision = 100
        self.made = 0
        """Counts what was given a uid."""

        self.nodes: dict[str, Node] = {}
        self.machines: dict[str, Machine] = {}
        self.pools: dict[str, Pool] = {}
        self.daemon_sets: dict[str, str] = {}
        """Install digests by driver label."""

        self.bus_up = True
        self.slots: dict[tuple[str, str], Slot] = {}
        self.reported: dict[str, Reported] = {}

        self.known: dict[str, Known] = {}
        self.writing_rollouts: set[str] = set()
        self.deaf: dict[str, tuple[str, ...]] = {}
        """Components that miss their pokes, by node."""
        self.epoch = 1
        """Of the present leader."""
        self.leader = 0
        """Counts those who led: effects of earlier ones are under way still, at most."""
        self.sources = dict[str, Source]()
        """Those whose proof is older than now."""
        self.blind: set[str] = set()
        """Parts of the views that stand still, and what they show: see `seeing`."""
        self.frozen_parts: dict[str, Mapping[str, Any]] = {}
        self.away_since: float | None = None
        self.away: tuple[tuple[float, float], ...] = ()
        self.foreign_operator = ""

        self.watchers: tuple[Watcher, ...] = ()
        self.minders: tuple[Minder, ...] = ()

        self.dirty: set[str] = set()
        """Nodes that are to be looked at again."""
        self.dirty_pools: set[str] = set()
        self.hushed: set[str] = set()
        """Nodes that changed by what was decided: to be shown, and no reason to decide again."""
        self.hushed_pools: set[str] = set()
        self.restale: set[str] = set()
        """Nodes whose view is out of date."""
        self.reknown: set[str] = set()
        """Nodes whose view is, but only in what the scheduler waits for and writes itself."""
        self.restale_pools: set[str] = set()
        self.violations: list[tuple[float, str, str]] = []
        """What must never happen on a machine: when, where and what."""
        self.chronicle: Chronicle | None = Chronicle() if journalled else None

    def after(self, seconds: float, what: What, *values: Any) -> None:
        """Put something on the agenda."""
        self.agenda.add(self.now + seconds, what, *values)

    def uid(self, kind: str) -> str:
        """A new one."""
        self.made += 1
        return f"{kind}-{self.made}"

    def touch(self, name: str) -> None:
        """The node is another one to whoever looks."""
        self.dirty.add(name)
        self.restale.add(name)

    def touch_pool(self, key: str) -> None:
        """The pool is another one to whoever looks."""
        self.dirty_pools.add(key)
        self.restale_pools.add(key)

    def hush(self, name: str) -> None:
        """The node is another one by what was just decided about it."""
        self.hushed.add(name)
        self.reknown.add(name)

    def touch_all(self, names: Iterable[str]) -> None:
        """So are these."""
        self.dirty.update(names)
        self.restale.update(self.dirty)

    def knows(self, name: str) -> Known:
        """What the scheduler keeps about a node."""
        known = self.known.get(name)
        if known is None:
            known = self.known[name] = Known()
        return known

    def note_violation(self, name: str, text: str) -> None:
        """On a machine something happened that no order of events may bring about."""
        self.violations.append((self.now, name, text))

    def tell(self, text: str) -> None:
        """Write something down for people who read the story."""
        if self.chronicle is not None:
            self.chronicle.tell(self.now, text)

    def node_changed(self, name: str, paths: frozenset[str]) -> None:
        """Tell whoever watches Nodes; `UID` changed of one that came or went."""
        for watcher in self.watchers:
            watcher(self, name, paths)

    def stir(self, machine: Machine) -> None:
        """Something happened on the machine."""
        for minder in self.minders:
            minder(self, machine)

    def machine(self, name: str, boot: int) -> Machine | None:
        """The machine, if it still is in that boot."""
        machine = self.machines.get(name)
        return machine if machine is not None and machine.up and machine.boot == boot else None

    def copy(self) -> "State":
        """A state of its own, which shares what never changes."""
        made = copy(self)
        made.agenda = self.agenda.copy()
        made.nodes = {name: copy(node) for name, node in self.nodes.items()}
        made.machines = {name: copied(machine) for name, machine in self.machines.items()}
        made.pools = {}
        for key, pool in self.pools.items():
            own = made.pools[key] = copy(pool)
            own.rollout = copy(pool.rollout)
        made.known = {}
        for name, known in self.known.items():
            own_known = made.known[name] = copy(known)
            if known.leaves is not None:
                leaves = own_known.leaves = copy(known.leaves)
                leaves.pods = leaves.pods.copy()
                leaves.refused = leaves.refused.copy()
        for field in (
            "daemon_sets",
            "writing_rollouts",
            "deaf",
            "slots",
            "reported",
            "sources",
            "blind",
            "frozen_parts",
        ):
            setattr(made, field, copy(getattr(self, field)))
        for field in (
            "dirty",
            "dirty_pools",
            "hushed",
            "hushed_pools",
            "restale",
            "reknown",
            "restale_pools",
            "violations",
        ):
            setattr(made, field, copy(getattr(self, field)))
        made.chronicle = self.chronicle.copy() if self.chronicle is not None else None
        return made
