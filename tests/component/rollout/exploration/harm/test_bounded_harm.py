"""Harm stays within its bounds in every order of events, for thresholds of two or more.

See docs/states.md#harm. Writes of a decision take effect late and apart, targets flap, failures are
accepted, nodes leave and join. `python -m tools.soak explore` goes further.
"""

import pytest

from tests.component.rollout.exploration.harm.explorer import HarmExploration, explore
from tests.component.rollout.exploration.harm.model import ModelSetup
from tests.component.rollout.exploration.long_explorations import POOL_EVENTS

MOST = 20_000


def explore_all(setup: ModelSetup, *, at_least: int) -> HarmExploration:
    found = explore(setup, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states >= at_least
    assert found.halts
    assert found.proofs
    return found


@pytest.mark.parametrize(
    ("nodes", "threshold", "at_least", "rests"),
    [(2, 2, 50, 2), (3, 2, 140, 3), (3, 3, 220, 3), (4, 2, 260, 5)],
)
def test_a_driver_may_fail_on_any_node(
    nodes: int, threshold: int, at_least: int, rests: int
) -> None:
    setup = ModelSetup(name="calm", nodes=nodes, threshold=threshold)
    assert explore_all(setup, at_least=at_least).rests == rests


def test_the_policy_may_want_another_driver_at_any_moment() -> None:
    setup = ModelSetup(name="edited", nodes=2, threshold=2, targets=("C",))
    assert explore_all(setup, at_least=1500).rests == 21


def test_the_target_may_flap() -> None:
    """Explored in part: the states are too many for a test."""
    setup = ModelSetup(name="flaps", nodes=3, threshold=2, targets=("C", "B"))
    found = explore(setup, most=2000)
    assert not found.failure, found.failure
    assert found.states >= 2000


@pytest.mark.parametrize("event", POOL_EVENTS)
def test_another_event_may_happen_at_any_moment(event: str) -> None:
    setup = ModelSetup(name="disturbed", nodes=2, threshold=2, events=(event,))
    explore_all(setup, at_least=120)


def test_failed_nodes_may_be_retried() -> None:
    setup = ModelSetup(name="retried", nodes=2, threshold=2, events=("release B",), retries=1)
    assert explore_all(setup, at_least=750).rests == 11
