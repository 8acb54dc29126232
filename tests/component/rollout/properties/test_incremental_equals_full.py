"""Incremental decisions equal decisions on the whole fleet, whatever changes in between."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.contracts.waits import is_for_people
from libs.rollout.decide import Decider, DecisionDelta, decide
from libs.rollout.decision import Wait
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import NOW
from tests.unit.rollout.decide.random_fleets import NAMES, OTHER, POOL, moments, nodes, pools


class IncrementalAndFull:
    """A fleet that is decided on incrementally and as a whole."""

    def __init__(self, fleet: Fleet) -> None:
        self.nodes = dict(fleet.nodes)
        self.pools = dict(fleet.pools)
        self.waiting: dict[str, Wait | None] = {}
        self.decider = Decider(fleet)

    def change(self, view: NodeView | None, name: str) -> None:
        """Replace a node; None deletes it."""
        old = self.nodes.pop(name, None)
        if view is None:
            self.waiting.pop(name, None)
            self.decider.update(nodes_gone=[name])
            return
        if old is None or old.uid != view.uid:
            self.waiting.pop(name, None)
        self.nodes[name] = view
        self.decider.update([view])

    def change_pool(self, view: PoolView) -> None:
        self.pools[view.key] = view
        self.decider.update(pools=[view])

    def check_equal(self, now: Instant) -> None:
        nodes = {
            name: replace(node, last_wait=self.waiting.get(name))
            for name, node in self.nodes.items()
        }
        full = decide(Fleet(pools=self.pools, nodes=nodes), now, self.decider.remembered)
        delta = self.decider.decide(now)
        assert delta.deposed == full.deposed
        if delta.deposed:
            return
        assert dict(delta.steps) == dict(full.steps)
        assert dict(self.decider.waits) == dict(full.waits)
        assert delta.rollouts == full.rollouts
        assert (delta.probes, delta.cancelled) == (full.probes, full.cancelled)
        assert delta.budgets == full.budgets
        assert delta.wake_at == full.wake_at
        assert {name: full.waits[name] for name in delta.waits} == dict(delta.waits)
        self._check_delta(delta, full.waits)

    def _check_delta(self, delta: DecisionDelta, waits: Mapping[str, Wait]) -> None:
        """Check that the delta lists exactly the changed waits."""
        for name, node in self.nodes.items():
            before, wait = self.waiting.get(name), waits.get(name)
            if wait is not None:
                is_new = before is None or before.code is not wait.code
                is_new = is_new or (_is_for_people(wait) and not _is_for_people(before))
                assert (name in delta.waits) is is_new, name
            elif name not in delta.steps and not node.write_pending:
                assert (name in delta.no_longer_waiting) is (before is not None), name
        for name in delta.no_longer_waiting:
            self.waiting[name] = None
        for name, wait in delta.waits.items():
            self.waiting[name] = wait
        for name, step in delta.steps.items():
            self.waiting[name] = step.wait


def _is_for_people(wait: Wait | None) -> bool:
    return wait is not None and is_for_people(wait.code, wait.who)


def random_pair(random: Random) -> IncrementalAndFull:
    names = random.sample(NAMES, random.randint(1, 6))
    keys = random.choice(([POOL], [POOL, OTHER]))
    fleet = Fleet(
        pools={key: pools(random, NAMES, key) for key in keys},
        nodes={name: nodes(random, name) for name in names},
    )
    return IncrementalAndFull(fleet)


def change(random: Random, pair: IncrementalAndFull, time: float) -> float:
    """Change something; return the time after it."""
    name = random.choice(NAMES)
    match random.choice(("node", "node", "node", "gone", "anew", "pool", "rollout", "time")):
        case "node":
            pair.change(nodes(random, name), name)
        case "anew":
            pair.change(replace(nodes(random, name), uid=f"uid-{name}-{time}"), name)
        case "gone" if name in pair.nodes:
            pair.change(None, name)
        case "pool":
            pair.change_pool(pools(random, NAMES, random.choice(sorted(pair.pools))))
        case "rollout":
            old = pair.pools[random.choice(sorted(pair.pools))]
            pair.change_pool(replace(old, rollout=pools(random, NAMES, old.key).rollout))
        case "time":
            return time + random.choice((0.5, 5.0, 30.0, 100.0))
        case _:
            pass
    return time


@pytest.mark.dear("four hundred fleets, each decided on twice after every change")
@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**64))
def test_after_any_change(seed: int) -> None:
    random = Random(seed)
    pair, time = random_pair(random), NOW
    now = moments(random, time)
    pair.check_equal(now)
    for _ in range(random.randint(1, 8)):
        for _ in range(random.randint(1, 2)):
            time = change(random, pair, time)
        now = moments(random, time) if random.random() < 0.3 else replace(now, at=time)
        pair.check_equal(now)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**64))
def test_after_pools_come_and_go(seed: int) -> None:
    random = Random(seed)
    pair, now = random_pair(random), moments(random)
    pair.check_equal(now)
    key = random.choice(sorted(pair.pools))
    del pair.pools[key]
    pair.decider.update(pools_gone=[key])
    pair.check_equal(now)
    pair.change_pool(pools(random, NAMES, key))
    pair.check_equal(now)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**64))
def test_in_any_order_of_nodes_and_pools(seed: int) -> None:
    random = Random(seed)
    pair, now = random_pair(random), moments(random)
    names, keys = list(pair.nodes), list(pair.pools)
    random.shuffle(names)
    random.shuffle(keys)
    decision = decide(Fleet(pools=pair.pools, nodes=pair.nodes), now)
    reordered = decide(
        Fleet(
            pools={key: pair.pools[key] for key in keys},
            nodes={name: pair.nodes[name] for name in names},
        ),
        now,
    )
    assert decision == reordered
    assert list(decision.steps) == list(reordered.steps)
    assert list(decision.waits) == list(reordered.waits)
