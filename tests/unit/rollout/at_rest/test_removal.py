"""Nodes that are to have no driver of ours (docs/states.md#v-remove)."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import Operation
from libs.policy.kinds.strategy import StrategySpec
from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import Candidate, NodeApplyConfiguration, Step, Wait, WriteNode
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    OLD,
    apply_step,
    done,
    failed,
    idle_components,
    instant,
    label_of,
    node,
    pool,
    record,
    required,
    with_record,
)
from tests.unit.rollout.outcomes import candidate_of, only_action, step_of, wait_of

GONE = replace(pool(), gone=True)
ELSEWHERE = "nvidiadriver-a"

REMOVED = {
    "done, and excluded": done(excluded=True),
    "done, and of another pool": done(pool=ELSEWHERE),
    "done, and of no pool": done(pool=""),
    "stamped": required(excluded=True),
    "failed": failed(excluded=True),
    "its label was stripped, and its driver may be there": done(
        excluded=True, driver_label="", components=idle_components()
    ),
    "a label of ours, and no record": done(excluded=True, record=None, state="", field_managers={}),
}


@pytest.mark.parametrize("case", REMOVED)
def test_a_driver_of_ours_is_removed_by_an_operation(case: str) -> None:
    outcome = candidate_of(step_at_rest(REMOVED[case], pool(), instant()))
    assert (outcome.operation, outcome.label) == (Operation.REMOVE, "")


@pytest.mark.parametrize("skipped", [done(excluded=True, skip=True), done(pool="", ready=False)])
def test_a_removal_waits_like_any_other_start(skipped: NodeView) -> None:
    assert wait_of(step_at_rest(skipped, pool(), instant())).code in {"skipped", "not-ready"}


def test_without_a_driver_our_fields_are_removed_at_once() -> None:
    stamped = required(
        excluded=True,
        driver_label="",
        record=record(state="upgrade-required", label=""),
        components=idle_components(),
        driver_pods=(),
    )
    step = step_of(step_at_rest(stamped, pool(), instant()))
    write = only_action(step, WriteNode)
    assert write.applied == NodeApplyConfiguration()
    left = apply_step(stamped, step)
    assert (left.state, left.record) == ("", None)
    assert step_at_rest(left, pool(), instant()) is None


@pytest.mark.parametrize(
    ("left", "pool"),
    [
        (node(excluded=True), pool()),
        (node(pool=""), pool()),
        (node(excluded=True, state="upgrade-done"), pool()),
        (node(pool=""), GONE),
        (node(), GONE),
    ],
    ids=[
        "excluded",
        "of no pool",
        "of another operator",
        "its policy is gone",
        "selected by a policy that is gone",
    ],
)
def test_a_node_without_anything_of_ours_needs_nothing(left: NodeView, pool: PoolView) -> None:
    assert step_at_rest(left, pool, instant()) is None


def test_a_failed_removal_is_retried_as_often_as_the_strategy_allows() -> None:
    broken = failed(excluded=True, driver_label="")
    broken = with_record(broken, operation=Operation.REMOVE, target="", label="")
    outcome = wait_of(
        step_at_rest(broken, replace(pool(), strategy=StrategySpec(retries=0)), instant())
    )
    assert outcome.code == "failed"
    step = step_of(step_at_rest(broken, pool(), instant()))
    again = candidate_of(step_at_rest(apply_step(broken, step), pool(), instant()))
    assert again.operation is Operation.REMOVE


@pytest.mark.parametrize(
    "ours",
    [done(), done(pool=""), required(), failed(), done(excluded=True), done(target=OLD)],
    ids=["done", "of no pool", "stamped", "failed", "excluded", "another target"],
)
def test_nothing_starts_for_a_deleted_policy(ours: NodeView) -> None:
    assert wait_of(step_at_rest(ours, GONE, instant())).code == "policy-gone"


def wait_at_rest(view: NodeView, where: PoolView | None = None) -> Wait:
    return wait_of(step_at_rest(view, where or pool(), instant()))


@pytest.mark.parametrize("cause", ["busy: pid 1", ""])
def test_a_failed_removal_reports_its_cause(cause: str) -> None:
    view = with_record(failed(excluded=True), operation=Operation.REMOVE, cause=cause, attempt=9)
    detail = wait_at_rest(view).detail
    assert cause in detail
    assert detail == detail.strip() != ""


@pytest.mark.parametrize(("label", "removed"), [(label_of(OLD), True), ("", False)])
def test_a_driver_label_alone_requires_a_removal(label: str, *, removed: bool) -> None:
    sent = idle_components()
    view = required(excluded=True, driver_label=label, components=sent)
    view = with_record(view, evidence=None, started=False)
    outcome = step_at_rest(view, pool(), instant())
    assert isinstance(outcome, Candidate if removed else Step)
