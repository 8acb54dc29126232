"""By whose rules a node is stepped, and where it counts, if several pools have to do with it."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from libs.contracts.node import MANAGER, NodeRecord
from libs.rollout.decide.node_index import NodeIndex
from libs.rollout.decide.pool_decider import PoolDecider
from libs.rollout.views.node import NodeField, NodeView
from tests.unit.rollout.builders import NEW, OLD, done, in_flight_node, label_of, node, pool

A, B = "pool-a", "pool-b"
BOTH, NOBODYS = (A, B), ("", ())


def of(given: NodeView, record: str, selected: str, *, label: str | None = None) -> NodeView:
    """The node, begun in one pool, and selected by another."""
    assert isinstance(given.record, NodeRecord)
    return replace(
        given,
        record=replace(given.record, pool=record),
        pool=selected,
        driver_label=given.driver_label if label is None else label,
    )


def lost(selected: str, *, label: str, ours: bool = True) -> NodeView:
    """A node of which no record says whose it is."""
    owners = {NodeField.DRIVER: (MANAGER if ours else "kubectl",)}
    return node(pool=selected, driver_label=label, field_managers=owners)


def homes(
    given: NodeView, *, flying: Iterable[str] = (), gone: Iterable[str] = ()
) -> tuple[str, tuple[str, ...]]:
    """Where it belongs, with two pools of which only the second one has the new target."""
    targets = {A: (OLD,), B: (OLD, NEW)}
    views = [
        replace(pool(targets=targets[key]), key=key, gone=key in gone, rollout=None)
        for key in (B, A)
    ]
    roster = NodeIndex()
    roster.put(given)
    for key in flying:
        roster.update_in_flight(key, into=[given.uid])
    return roster.pools_of(given, {view.key: PoolDecider(view) for view in views})


def test_a_node_belongs_to_the_pool_that_selects_it() -> None:
    assert homes(of(done(), A, A)) == (A, (A,))
    assert homes(node(pool=B)) == (B, (B,))
    assert homes(lost(A, label=label_of(NEW))) == (A, (A,))


def test_who_was_begun_elsewhere_stays_there_until_it_has_no_driver_of_that_pool() -> None:
    assert homes(of(done(), A, B)) == (A, BOTH)
    assert homes(of(in_flight_node(), A, B)) == (A, BOTH)
    assert homes(of(done(), A, B, label="")) == (B, (B,))
    assert homes(of(in_flight_node(), A, B, label="")) == (A, BOTH)


def test_whose_pool_is_gone_is_taken_over_by_the_one_that_selects_it_but_not_under_way() -> None:
    assert homes(of(done(), A, B), gone=[A]) == (B, (B,))
    assert homes(of(done(), A, ""), gone=[A]) == (A, (A,))
    assert homes(of(in_flight_node(), A, B), gone=[A]) == (A, BOTH)


@pytest.mark.parametrize("label", ["", label_of(NEW)])
def test_whom_nobody_selects_looks_after_the_pool_in_its_record(label: str) -> None:
    assert homes(of(done(), B, "", label=label)) == (B, (B,))
    assert homes(of(done(), "of-nobody", "", label=label)) == NOBODYS


def test_without_a_record_it_is_the_pool_whose_driver_it_runs_or_else_the_first() -> None:
    assert homes(lost("", label=label_of(NEW))) == (B, (B,))
    assert homes(lost("", label=label_of(OLD))) == (A, (A,))
    assert homes(lost("", label="of-nobody")) == (A, (A,))
    assert homes(lost("", label=label_of(NEW), ours=False)) == NOBODYS


def test_who_has_a_place_counts_where_it_has_it_whoever_selects_it() -> None:
    assert homes(node(pool=B), flying=[A]) == (B, BOTH)
    assert homes(node(pool=A), flying=[A]) == (A, (A,))
    assert homes(of(done(), A, "", label=""), flying=[B]) == (A, BOTH)
    assert homes(lost("", label=label_of(OLD)), flying=[B]) == (B, (B,))
    assert homes(node(pool=""), flying=[B, A]) == (A, BOTH)
