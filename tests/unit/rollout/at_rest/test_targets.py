"""The target of a joining node, and which nodes are outside the counts (docs/states.md#harm)."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.contracts.node import Operation, WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.at_rest import step_at_rest
from libs.rollout.node_driver import goal_of, target_of
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Readiness
from tests.unit.rollout.builders import (
    NEW,
    OLD,
    evidence,
    idle_components,
    instant,
    label_of,
    node,
    pool,
    record,
    required,
    with_build,
)
from tests.unit.rollout.outcomes import candidate_of, wait_of

LOADED = LoadedDriver(version="570.1")

# Nodes that join, while a target proves itself or is halted (docs/states.md#harm).

JOINS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing was ever proven": ({}, NEW),
    "the target is proven": ({"proven": frozenset({NEW, OLD}), "last_good": NEW}, NEW),
    "the target is proven, and another was before": (
        {"proven": frozenset({NEW}), "last_good": OLD},
        NEW,
    ),
    "the target proves itself": ({"proven": frozenset({OLD}), "last_good": OLD}, OLD),
    "target: halted": (
        {"halted": {NEW: "2 of 2"}, "proven": frozenset({OLD}), "last_good": OLD},
        OLD,
    ),
    "target: halted, and nothing else is good": ({"halted": {NEW: "2 of 2"}}, NEW),
}


@pytest.mark.parametrize("case", JOINS)
@pytest.mark.parametrize("join", [node(), node(loaded=LOADED)], ids=["empty", "in use"])
def test_a_joining_node_gets_the_proven_target(case: str, join: NodeView) -> None:
    standing, target = JOINS[case]
    outcome = candidate_of(step_at_rest(join, pool(standing=standing), instant()))
    assert (outcome.target, outcome.label) == (target, label_of(target))


def test_a_joining_node_gets_the_wanted_target_where_the_last_good_has_no_build() -> None:
    standing = {"proven": frozenset({OLD}), "last_good": OLD}
    outcome = candidate_of(step_at_rest(node(), pool(targets=(NEW,), standing=standing), instant()))
    assert outcome.target == NEW


@pytest.mark.parametrize("readiness", [Readiness.UNSETTLED, Readiness.MISSING])
def test_a_joining_node_gets_the_last_good_target_while_the_wanted_one_is_not_ready(
    readiness: Readiness,
) -> None:
    good = pool(standing={"proven": frozenset({OLD}), "last_good": OLD})
    outcome = candidate_of(step_at_rest(node(), with_build(good, readiness=readiness), instant()))
    assert outcome.target == OLD


def test_a_released_bring_up_still_joins() -> None:
    given_back = record(state="upgrade-required", operation=None, label="", label_before="")
    joining = node(state="upgrade-required", record=given_back, components=idle_components())
    standing = {"proven": frozenset({OLD}), "last_good": OLD}
    outcome = candidate_of(step_at_rest(joining, pool(standing=standing), instant()))
    assert (outcome.operation, outcome.target) == (Operation.BRING_UP, OLD)


def test_an_upgraded_node_does_not_join() -> None:
    standing = {"proven": frozenset({OLD}), "last_good": OLD}
    assert candidate_of(step_at_rest(required(), pool(standing=standing), instant())).target == NEW


# Outside the counts of bounded harm: only nodes that are broken already.

OUTSIDE: dict[str, tuple[dict[str, Any], bool]] = {
    "failed on an earlier target": ({"started": True, "target": OLD}, True),
    "failed on an earlier one, was tried again, and given back": (
        {"unproven": True, "target": OLD},
        True,
    ),
    "gave up on an earlier one, and what it had is proven still": (
        {"unproven": True, "target": OLD, "evidence": evidence(OLD)},
        False,
    ),
    "failed on this one": ({"started": True, "target": NEW}, False),
    "failed on this one, and on an earlier one before": (
        {"started": True, "target": NEW, "outside": True},
        True,
    ),
    "gave up on an earlier one before anything was done": ({"target": OLD}, False),
    "was given back after it had failed earlier": ({"target": NEW, "outside": True}, True),
    "works": ({"started": True, "target": OLD, "evidence": evidence(OLD)}, False),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_only_a_node_broken_by_an_earlier_target_is_outside_the_counts(case: str) -> None:
    changes, outside = OUTSIDE[case]
    stored = record(state="upgrade-required", label=label_of(OLD), **changes)
    evident = label_of(OLD) if stored.evidence else ""
    wanting = required(record=stored, components=idle_components(proven=evident))
    assert candidate_of(step_at_rest(wanting, pool(), instant())).outside is outside


def test_a_node_without_a_driver_of_ours_is_inside_the_counts() -> None:
    gave_up = record(state="upgrade-required", label=label_of(OLD), target=OLD, unproven=True)
    joining = node(record=gave_up, state="upgrade-required", loaded=LOADED)
    outcome = candidate_of(
        step_at_rest(replace(joining, components=idle_components()), pool(), instant())
    )
    assert (outcome.operation, outcome.outside) == (Operation.TAKE_OVER, False)


@pytest.mark.parametrize(
    ("readiness", "expected"), [(Readiness.UNSETTLED, OLD), (Readiness.MISSING, NEW)]
)
def test_a_joining_node_waits_for_an_unsettled_last_good_target(
    readiness: Readiness, expected: str
) -> None:
    where = with_build(pool(standing={"last_good": OLD}), OLD, readiness=readiness)
    assert target_of(node(), None, where) == expected


def test_a_joining_node_keeps_a_pre_installed_driver() -> None:
    where = replace(pool(standing={"last_good": OLD}), method=InstallMethod.PRE_INSTALLED)
    assert target_of(node(), None, where) == NEW


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (("no such image",), "no such image"),
        ((), "policy"),
    ],
)
def test_a_missing_target_reports_why_nothing_is_wanted(
    held: tuple[str, ...], expected: str
) -> None:
    goal = wait_of(goal_of(node(), replace(pool(), held=held), "", instant()))
    assert goal.code is WaitCode.TARGET_MISSING
    assert expected in goal.detail


@pytest.mark.parametrize(
    ("detail", "expected"),
    [("no artefact", "no artefact"), ("", "ubuntu24.04")],
)
def test_a_missing_build_reports_its_detail(detail: str, expected: str) -> None:
    where = with_build(pool(), readiness=Readiness.MISSING, detail=detail)
    assert expected in wait_of(goal_of(node(), where, NEW, instant())).detail
