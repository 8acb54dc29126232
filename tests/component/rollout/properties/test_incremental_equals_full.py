"""Kept decisions and decisions made anew: always the same, whatever changed in between."""

from collections.abc import Mapping
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.rollout.decide import Decider, DecisionDelta, decide
from libs.rollout.decision import Wait
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import NOW
from tests.unit.rollout.decide.random_fleets import NAMES, OTHER, POOL, moments, nodes, pools


class IncrementalAndFull:
    """A fleet of which one half is kept in mind and the other looked at anew."""

    def __init__(self, fleet: Fleet) -> None:
        self.nodes = dict(fleet.nodes)
        self.pools = dict(fleet.pools)
        self.waiting: dict[str, Wait | None] = {}
        self.deciding = Decider(fleet)

    def change(self, view: NodeView | None, name: str) -> None:
        """The node is this now; None: it is gone."""
        had = self.nodes.pop(name, None)
        if view is None:
            self.waiting.pop(name, None)
            self.deciding.update(nodes_gone=[name])
            return
        if had is None or had.uid != view.uid:
            self.waiting.pop(name, None)
        self.nodes[name] = view
        self.deciding.update([view])

    def change_pool(self, view: PoolView) -> None:
        """The pool is this now."""
        self.pools[view.key] = view
        self.deciding.update(pools=[view])

    def agree(self, now: Instant) -> None:
        """They decide the same."""
        seen = {
            name: replace(node, last_wait=self.waiting.get(name))
            for name, node in self.nodes.items()
        }
        whole = decide(Fleet(pools=self.pools, nodes=seen), now)
        news = self.deciding.decide(now)
        assert news.deposed == whole.deposed
        if news.deposed:
            return
        assert dict(news.steps) == dict(whole.steps)
        assert dict(self.deciding.waits) == dict(whole.waits)
        assert news.rollouts == whole.rollouts
        assert (news.probes, news.cancelled) == (whole.probes, whole.cancelled)
        assert news.budgets == whole.budgets
        assert news.wake_at == whole.wake_at
        assert {name: whole.waits[name] for name in news.waits} == dict(news.waits)
        self._told(news, whole.waits)

    def _told(self, news: DecisionDelta, waits: Mapping[str, Wait]) -> None:
        """What is told is all that is new."""
        for name, node in self.nodes.items():
            before, wait = self.waiting.get(name), waits.get(name)
            if wait is not None:
                is_new = before is None or before.code is not wait.code
                assert (name in news.waits) is is_new, name
            elif name not in news.steps and not node.write_pending:
                assert (name in news.no_longer_waiting) is (before is not None), name
        for name in news.no_longer_waiting:
            self.waiting[name] = None
        for name, wait in news.waits.items():
            self.waiting[name] = wait
        for name, step in news.steps.items():
            self.waiting[name] = step.wait


def start(r: Random) -> IncrementalAndFull:
    names = r.sample(NAMES, r.randint(1, 6))
    keys = r.choice(([POOL], [POOL, OTHER]))
    made = Fleet(
        pools={key: pools(r, NAMES, key) for key in keys},
        nodes={name: nodes(r, name) for name in names},
    )
    return IncrementalAndFull(made)


def change(r: Random, both: IncrementalAndFull, at: float) -> float:
    """Something happens."""
    name = r.choice(NAMES)
    match r.choice(("node", "node", "node", "gone", "anew", "pool", "rollout", "time")):
        case "node":
            both.change(nodes(r, name), name)
        case "anew":
            both.change(replace(nodes(r, name), uid=f"uid-{name}-{at}"), name)
        case "gone" if name in both.nodes:
            both.change(None, name)
        case "pool":
            both.change_pool(pools(r, NAMES, r.choice(sorted(both.pools))))
        case "rollout":
            old = both.pools[r.choice(sorted(both.pools))]
            both.change_pool(replace(old, rollout=pools(r, NAMES, old.key).rollout))
        case "time":
            return at + r.choice((0.5, 5.0, 30.0, 100.0))
        case _:
            pass
    return at


@settings(max_examples=1000, deadline=None)
@given(st.integers(0, 2**64))
def test_whatever_changed(seed: int) -> None:
    r = Random(seed)
    both, at = start(r), NOW
    now = moments(r, at)
    both.agree(now)
    for _ in range(r.randint(1, 8)):
        for _ in range(r.randint(1, 2)):
            at = change(r, both, at)
        now = moments(r, at) if r.random() < 0.3 else replace(now, at=at)
        both.agree(now)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**64))
def test_whichever_pools_come_and_go(seed: int) -> None:
    r = Random(seed)
    both, now = start(r), moments(r)
    both.agree(now)
    gone = r.choice(sorted(both.pools))
    del both.pools[gone]
    both.deciding.update(pools_gone=[gone])
    both.agree(now)
    both.change_pool(pools(r, NAMES, gone))
    both.agree(now)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**64))
def test_in_whatever_order_it_is_given(seed: int) -> None:
    r = Random(seed)
    both, now = start(r), moments(r)
    names, keys = list(both.nodes), list(both.pools)
    r.shuffle(names)
    r.shuffle(keys)
    one = decide(Fleet(pools=both.pools, nodes=both.nodes), now)
    other = decide(
        Fleet(
            pools={key: both.pools[key] for key in keys},
            nodes={name: both.nodes[name] for name in names},
        ),
        now,
    )
    assert one == other
    assert list(one.steps) == list(other.steps)
    assert list(one.waits) == list(other.waits)
