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
"""By the pool that selects it."""
UID = STRAY[POOL].uid
HERE = {
    granted: open_pool(record=of_target(), base=2, in_flight={UID: FLIGHT} if granted else {})
    for granted in (True, False)
}
OTHER = replace(pool(), key="other", uid="uid-of-other", rollout=None)
BYSTANDER = done("bystander")


class StrayCase:
    """An entry without its node, and an incremental decider."""

    def __init__(self) -> None:
        self.granted, self.selected = True, ""
        self.kept = Decider(fleet(granted=True, selected=""))
        self.is_decided()

    def comes(self) -> None:
        self._comes(POOL)

    def comes_elsewhere(self) -> None:
        self._comes("other")

    def goes(self) -> None:
        self.selected = ""
        self.kept.update(nodes_gone=["stray"])

    def place_is_granted(self) -> None:
        self._shows(granted=True)

    def place_returns(self) -> None:
        self._shows(granted=False)

    def is_decided(self) -> None:
        self.kept.decide(instant())

    def _comes(self, selected: str) -> None:
        self.selected = selected
        self.kept.update([STRAY[selected]])

    def _shows(self, *, granted: bool) -> None:
        self.granted = granted
        self.kept.update(pools=[HERE[granted]])


ACTS: tuple[Callable[[StrayCase], None], ...] = (
    StrayCase.comes,
    StrayCase.comes_elsewhere,
    StrayCase.goes,
    StrayCase.place_is_granted,
    StrayCase.place_returns,
    StrayCase.is_decided,
)


def fleet(*, granted: bool, selected: str) -> Fleet:
    nodes = {"bystander": BYSTANDER}
    if selected:
        nodes["stray"] = STRAY[selected]
    return Fleet(pools={POOL: HERE[granted], "other": OTHER}, nodes=nodes)


@cache
def whole(*, granted: bool, selected: str) -> Decision:
    return decide(fleet(granted=granted, selected=selected), instant())


def test_no_order_of_events_leaves_a_stray_entry() -> None:
    for acts in product(ACTS, repeat=4):
        scene = StrayCase()
        for act in acts:
            act(scene)
        due = whole(granted=scene.granted, selected=scene.selected)
        delta, sent = scene.kept.decide(instant()), [act.__name__ for act in acts]
        assert (delta.rollouts, delta.budgets) == (due.rollouts, due.budgets), sent
        assert dict(scene.kept.waits) == due.waits, sent
