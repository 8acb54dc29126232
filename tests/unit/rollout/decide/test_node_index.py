"""The pools that a node belongs to and counts in."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from libs.contracts.node import MANAGER, NodeRequest, UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.decide import NodeIndex
from libs.rollout.pool.pool_decider import PoolDecider
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from tests.unit.rollout.allocate.builders import code_of, decided, of_target, open_pool
from tests.unit.rollout.builders import (
    NEW,
    OLD,
    apply_step,
    done,
    in_flight_node,
    label_of,
    node,
    pool,
    required,
    with_record,
)

A, B = "pool-a", "pool-b"
BOTH, NO_POOLS = (A, B), ("", ())


def between_pools(
    given: NodeView, record: str, selected: str, *, label: str | None = None
) -> NodeView:
    return replace(
        with_record(given, pool=record),
        pool=selected,
        driver_label=given.driver_label if label is None else label,
    )


def without_record(selected: str, *, label: str, ours: bool = True) -> NodeView:
    owners = {NodeField.DRIVER: (MANAGER if ours else "kubectl",)}
    return node(pool=selected, driver_label=label, field_managers=owners)


def pools_of(
    given: NodeView, *, flying: Iterable[str] = (), gone: Iterable[str] = ()
) -> tuple[str, tuple[str, ...]]:
    """Return the home and all pools of a node; only pool B has the new target."""
    targets = {A: (OLD,), B: (OLD, NEW)}
    views = [
        replace(pool(targets=targets[key]), key=key, gone=key in gone, rollout=None)
        for key in (B, A)
    ]
    index = NodeIndex()
    index.put(given)
    for key in flying:
        index.update_in_flight(key, into=[given.uid])
    return index.pools_of(given, {view.key: PoolDecider(view) for view in views})


def test_a_node_belongs_to_the_pool_that_selects_it() -> None:
    assert pools_of(between_pools(done(), A, A)) == (A, (A,))
    assert pools_of(node(pool=B)) == (B, (B,))
    assert pools_of(without_record(A, label=label_of(NEW))) == (A, (A,))


def test_a_node_stays_in_its_old_pool_while_it_has_a_driver_of_it() -> None:
    assert pools_of(between_pools(done(), A, B)) == (A, BOTH)
    assert pools_of(between_pools(in_flight_node(), A, B)) == (A, BOTH)
    assert pools_of(between_pools(done(), A, B, label="")) == (B, (B,))
    assert pools_of(between_pools(in_flight_node(), A, B, label="")) == (A, BOTH)


def test_a_node_of_a_deleted_pool_moves_unless_it_is_in_flight() -> None:
    assert pools_of(between_pools(done(), A, B), gone=[A]) == (B, (B,))
    assert pools_of(between_pools(done(), A, ""), gone=[A]) == (A, (A,))
    assert pools_of(between_pools(in_flight_node(), A, B), gone=[A]) == (A, BOTH)


@pytest.mark.parametrize("label", ["", label_of(NEW)])
def test_an_unselected_node_belongs_to_the_pool_in_its_record(label: str) -> None:
    assert pools_of(between_pools(done(), B, "", label=label)) == (B, (B,))
    assert pools_of(between_pools(done(), "unknown", "", label=label)) == NO_POOLS


def test_without_a_record_a_node_belongs_to_the_pool_of_its_driver() -> None:
    assert pools_of(without_record("", label=label_of(NEW))) == (B, (B,))
    assert pools_of(without_record("", label=label_of(OLD))) == (A, (A,))
    assert pools_of(without_record("", label="unknown")) == (A, (A,))
    assert pools_of(without_record("", label=label_of(NEW), ours=False)) == NO_POOLS


def test_a_node_with_an_entry_also_counts_in_the_pool_of_the_entry() -> None:
    assert pools_of(node(pool=B), flying=[A]) == (B, BOTH)
    assert pools_of(node(pool=A), flying=[A]) == (A, (A,))
    assert pools_of(between_pools(done(), A, "", label=""), flying=[B]) == (A, BOTH)
    assert pools_of(without_record("", label=label_of(OLD)), flying=[B]) == (B, (B,))
    assert pools_of(node(pool=""), flying=[B, A]) == (A, BOTH)


# The pool responsible for a node that no pool selects any more.


POOL = open_pool(record=of_target())


@pytest.mark.parametrize(
    "left",
    [done(pool=""), required(pool=""), required(pool="", driver_label="")],
    ids=["done", "stamped", "stamped, and its driver label was stripped"],
)
def test_an_unselected_node_is_released_by_the_pool_in_its_record(left: NodeView) -> None:
    assert list(decided(POOL, left).steps) == [left.name]


def test_an_unselected_node_that_was_never_ours_is_left_alone() -> None:
    decision = decided(POOL, node(pool="", state=UpgradeState.UPGRADE_DONE))
    assert (decision.steps, decision.waits) == ({}, {})


@pytest.mark.parametrize("label", [label_of(OLD), "unknown"])
def test_an_unselected_node_without_a_record_reports_the_loss(label: str) -> None:
    lost = replace(done(OLD, pool=""), record=None, driver_label=label)
    decision = decided(POOL, lost)
    assert code_of(decision, lost.name) is WaitCode.RECORD_LOST


DAMAGED = done(
    "n",
    OLD,
    pool="",
    state="",
    driver_label="",
    record=MalformedAnnotation("{"),
    field_managers={NodeField.RECORD: ("kubectl",)},
)
"""Only its agents show that the node was ours."""


@pytest.mark.parametrize("label", ["", label_of(OLD)])
def test_an_unselected_node_with_a_damaged_record_reports_the_loss(label: str) -> None:
    decision = decided(POOL, replace(DAMAGED, driver_label=label))
    assert code_of(decision, "n") is WaitCode.RECORD_LOST


def test_a_note_on_an_unselected_node_that_never_had_a_command_is_left_alone() -> None:
    decision = decided(POOL, replace(DAMAGED, components={}))
    assert (decision.steps, decision.waits) == ({}, {})


@pytest.mark.parametrize("request_", [NodeRequest.ADOPT, NodeRequest.FORGET])
def test_adopt_and_forget_end_the_loss_on_an_unselected_node(request_: NodeRequest) -> None:
    step = decided(POOL, replace(DAMAGED, request=request_)).steps["n"]
    assert decided(POOL, apply_step(DAMAGED, step)).waits == {}
