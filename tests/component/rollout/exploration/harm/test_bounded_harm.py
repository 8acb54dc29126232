"""Harm stays within its bounds, whoever writes first (docs/states.md#harm), with T of two and more.

In pools of a few nodes every order of events is tried: decisions whose writes take effect late and
apart, policies that flap, releases, nodes that leave or come. `python -m tools.soak explore` goes
further.
"""

import pytest

from tests.component.rollout.exploration.harm.explorer import HarmExploration, explore
from tests.component.rollout.exploration.harm.model import ModelSetup

MOST = 20_000


def explored(terms: ModelSetup, *, at_least: int) -> HarmExploration:
    found = explore(terms, most=MOST)
    assert not found.wrong, found.wrong
    assert found.whole
    assert found.states >= at_least
    assert found.halts
    assert found.proofs
    return found


@pytest.mark.parametrize(
    ("nodes", "threshold", "at_least"), [(2, 2, 70), (3, 2, 200), (3, 3, 200), (4, 2, 400)]
)
def test_a_driver_may_fail_on_any_node(nodes: int, threshold: int, at_least: int) -> None:
    explored(ModelSetup(name="calm", nodes=nodes, threshold=threshold), at_least=at_least)


def test_the_policy_may_want_another_driver_at_any_moment() -> None:
    explored(ModelSetup(name="edited", nodes=2, threshold=2, wishes=("C",)), at_least=2000)


def test_the_policy_may_flap() -> None:
    """Too many to try them all: as far as it goes."""
    terms = ModelSetup(name="flaps", nodes=3, threshold=2, wishes=("C", "B"))
    found = explore(terms, most=5000)
    assert not found.wrong, found.wrong
    assert found.states >= 5000


@pytest.mark.parametrize(
    "left",
    [
        ("release B",),
        ("a node is deleted",),
        ("a node leaves the pool",),
        ("a node joins",),
        ("pods do not leave",),
        ("a write is lost",),
        ("a failed driver comes up",),
    ],
)
def test_something_else_may_come_between(left: tuple[str, ...]) -> None:
    explored(ModelSetup(name="disturbed", nodes=2, threshold=2, left=left), at_least=90)


def test_failed_nodes_may_be_tried_again() -> None:
    terms = ModelSetup(name="retried", nodes=2, threshold=2, left=("release B",), retries=1)
    explored(terms, at_least=1000)
