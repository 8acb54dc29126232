"""Entries in flight of absent nodes, in every order of events."""

from collections.abc import Callable
from functools import cache
from itertools import product

from msgspec.structs import replace

from libs.contracts.rollout import InFlight
from libs.rollout.decide import Decider, decide
from libs.rollout.decision import Decision
from libs.rollout.views.fleet import Fleet
from tests.unit.rollout.allocate.builders import candidate, of_target, open_pool
from tests.unit.rollout.builders import NEW, NOW, POOL, done, instant, pool

FLIGHT = InFlight(node="stray", token=1, target=NEW, since=NOW)
STRAY = {POOL: candidate("stray"), "other": candidate("stray", pool="other")}
"""The node by the pool that selects it."""
UID = STRAY[POOL].uid
POOLS = {
    granted: open_pool(record=of_target(), base=2, in_flight={UID: FLIGHT} if granted else {})
    for granted in (True, False)
}
OTHER = replace(pool(), key="other", uid="uid-of-other", rollout=None)
OTHER_NODE = done("bystander")


class StrayCase:
    """An entry without its node, and an incremental decider."""

    def __init__(self) -> None:
        self.granted, self.selected = True, ""
        self.decider = Decider(fleet(granted=True, selected=""))
        self.decide()

    def node_joins(self) -> None:
        self._add_node(POOL)

    def node_joins_other_pool(self) -> None:
        self._add_node("other")

    def node_leaves(self) -> None:
        self.selected = ""
        self.decider.update(nodes_gone=["stray"])

    def entry_is_granted(self) -> None:
        self._show_rollout(granted=True)

    def entry_is_withdrawn(self) -> None:
        self._show_rollout(granted=False)

    def decide(self) -> None:
        self.decider.decide(instant())

    def _add_node(self, selected: str) -> None:
        self.selected = selected
        self.decider.update([STRAY[selected]])

    def _show_rollout(self, *, granted: bool) -> None:
        self.granted = granted
        self.decider.update(pools=[POOLS[granted]])


ACTS: tuple[Callable[[StrayCase], None], ...] = (
    StrayCase.node_joins,
    StrayCase.node_joins_other_pool,
    StrayCase.node_leaves,
    StrayCase.entry_is_granted,
    StrayCase.entry_is_withdrawn,
    StrayCase.decide,
)


def fleet(*, granted: bool, selected: str) -> Fleet:
    nodes = {"bystander": OTHER_NODE}
    if selected:
        nodes["stray"] = STRAY[selected]
    return Fleet(pools={POOL: POOLS[granted], "other": OTHER}, nodes=nodes)


@cache
def whole(*, granted: bool, selected: str) -> Decision:
    return decide(fleet(granted=granted, selected=selected), instant())


def test_no_order_of_events_leaves_a_stray_entry() -> None:
    for acts in product(ACTS, repeat=4):
        case = StrayCase()
        for act in acts:
            act(case)
        full = whole(granted=case.granted, selected=case.selected)
        delta, names = case.decider.decide(instant()), [act.__name__ for act in acts]
        assert (delta.rollouts, delta.budgets) == (full.rollouts, full.budgets), names
        assert dict(case.decider.waits) == full.waits, names
