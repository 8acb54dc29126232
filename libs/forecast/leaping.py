"""Nodes whose way is plain are taken along it in one leap.

So a play of thousands of nodes decides about each a few times instead of fifty. Whatever is not
plain is played step by step. Must not know what a plain way is, nor what a node is like at its end.
"""

from collections.abc import Iterator

from libs.contracts.node import Record, UpgradeState
from libs.contracts.reports import Preflight
from libs.forecast.landing import land
from libs.forecast.plain import Way, plain
from libs.forecast.stage import api, evictions
from libs.forecast.stage.objects import Machine, Node
from libs.forecast.stage.paths import LEASE
from libs.forecast.stage.state import State
from libs.rollout.views.machine import Checked, Shelter

_FOR_GOOD = 1e12


class Leaps:
    """Of one play."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: set[tuple[str, int]] = set()
        """Nodes, by the token under which they were looked at."""
        self._aloft: set[str] = set()
        for node in state.nodes.values():
            _checked(state, node)

    @property
    def grounded(self) -> set[str]:
        """Of the nodes that changed, those that are not on their leap."""
        return self._state.dirty - self._aloft

    def begun(self) -> Iterator[tuple[str, Way]]:
        """Who leaps now, of all that changed."""
        for name in self.grounded:
            way = self._way(name)
            if way is not None:
                yield name, way

    def _way(self, name: str) -> Way | None:
        state = self._state
        node, record = _emptying(state, name)
        if node is None or record is None or (name, record.token) in self._known:
            return None
        known = state.knows(name)
        if known.writing:
            return None
        self._known.add((name, record.token))
        way = None if evictions.under_way(state, name) else plain(state, node, record)
        if way is not None:
            known.writing += 1
            node.taint = True
            self._aloft.add(name)
            state.restale.add(name)
            state.agenda.add(way.moves, moves, name, way, self._aloft)
        return way


def moves(state: State, name: str, way: Way, aloft: set[str]) -> None:
    """Its pods are gone, and its label would move: not where the target was halted meanwhile."""
    machine, pool = state.machines[name], state.pools[way.record.pool]
    for uid in way.leaving:
        machine.works.pop(uid, None)
    targets = pool.rollout.status.targets if pool.rollout is not None else {}
    target = targets.get(way.record.target)
    if target is not None and target.halted_because:
        goes_on(state, name, aloft)
    else:
        state.agenda.add(way.ends, lands, name, way, aloft)


def lands(state: State, name: str, way: Way, aloft: set[str]) -> None:
    """It is given back, upgraded in good order."""
    land(state, state.nodes[name], way)
    goes_on(state, name, aloft)


def goes_on(state: State, name: str, aloft: set[str]) -> None:
    """From here on it is decided about again."""
    aloft.discard(name)
    state.knows(name).writing -= 1
    state.touch(name)


def _emptying(state: State, name: str) -> tuple[Node | None, Record | None]:
    """The node, if it is leased for an upgrade and its pods are the next to go."""
    node = state.nodes.get(name)
    record = api.record_of(node) if node is not None else None
    if node is None or record is None or api.value(node, LEASE) is None:
        return None, None
    return node, record if record.state == UpgradeState.POD_DELETION_REQUIRED else None


def _checked(state: State, node: Node) -> None:
    """A preflight that will find nothing has found nothing: nobody else changes machines here."""
    machine, pool = state.machines[node.name], state.pools.get(node.pool)
    build = None if pool is None else pool.builds.get(pool.target, {}).get(node.variant)
    if build is None or not _unobstructed(machine):
        return
    known = state.knows(node.name)
    nothing = Preflight(check=f"check-{node.name}", label=build.label)
    known.preflight_boot = node.boot_id
    known.preflight = Checked(
        label=build.label, asked=state.now, answered=_FOR_GOOD, answer=nothing
    )
    state.restale.add(node.name)


def _unobstructed(machine: Machine) -> bool:
    driver = machine.agents.get("driver")
    if driver is None or driver.silent_at is not None:
        return False
    if machine.host_processes or machine.obstacles:
        return False
    tenants = (work.tenant for work in machine.works.values() if work.tenant.gpus)
    return not any(
        tenant.shelter is not Shelter.NONE or tenant.bare or tenant.empty_dir for tenant in tenants
    )
