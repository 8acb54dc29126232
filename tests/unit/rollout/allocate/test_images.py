"""Driver images before a start: what is waited for, and what that holds up."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import CHECK_VALID_SECONDS
from libs.contracts.node import NodeRequest
from libs.contracts.waits import WaitCode
from libs.rollout.pool.allocation import PREFLIGHTS_AHEAD
from libs.rollout.preflight import PULL_SECONDS
from libs.rollout.views.machine import ImagePull
from libs.rollout.views.node import NodeView
from tests.unit.rollout.allocate.builders import (
    FINDING,
    asked_of,
    candidate,
    checked,
    decided,
    granted_to,
    of_target,
    open_pool,
)
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    instant,
    label_of,
    required,
    with_build,
    with_record,
)

IMAGE = "r.example/driver:580"
ERROR = "ImagePullBackOff: connection refused"
TWO = with_build(
    open_pool(upgrade={"max_parallel_upgrades": 0, "max_unavailable": 2}, record=of_target()),
    image=IMAGE,
)


def pulling(node: NodeView, target: str = NEW, **pull: object) -> NodeView:
    return replace(node, image_pull=ImagePull(label=label_of(target), **pull))  # type: ignore[arg-type]


def test_a_node_starts_only_when_the_image_is_on_it() -> None:
    nodes = [candidate("node-1"), pulling(candidate("node-2"), present=True)]
    assert granted_to(TWO, *nodes) == ["node-2"]
    wait = decided(TWO, *nodes).waits["node-1"]
    assert (wait.code, wait.until) == (WaitCode.PREFLIGHT, NOW - 2 + CHECK_VALID_SECONDS)
    assert IMAGE in wait.detail
    slow = decided(TWO, pulling(nodes[0])).waits["node-1"]
    assert (slow.code, slow.until) == (WaitCode.PREFLIGHT, NOW - 2 + PULL_SECONDS)


@pytest.mark.parametrize("target", [OLD, NEW])
def test_the_image_of_another_driver_does_not_count(target: str) -> None:
    node = pulling(candidate("node-1"), target=target, present=True)
    assert granted_to(TWO, node) == (["node-1"] if target == NEW else [])


def test_a_pull_keeps_its_turn_and_a_failed_one_loses_it() -> None:
    one = replace(TWO, upgrade=replace(TWO.upgrade, max_unavailable=1))
    ready = pulling(candidate("node-2"), present=True)
    assert granted_to(one, pulling(candidate("node-1")), ready) == []
    failed = pulling(candidate("node-1"), trouble=ERROR)
    assert granted_to(one, failed, ready) == ["node-2"]
    wait = decided(one, failed, ready).waits["node-1"]
    assert wait.detail == f"the driver image {IMAGE} cannot be brought to the node: {ERROR}"
    assert wait.who.startswith("the administrator of the registry")
    failed = pulling(candidate("node-1"), trouble=ERROR, is_way_back=True)
    wait = decided(one, failed, ready).waits["node-1"]
    assert wait.detail == (
        "the image of the driver that the node would go back to cannot be brought to the node:"
        f" {ERROR}"
    )


def test_a_pull_that_takes_too_long_loses_its_turn() -> None:
    one = replace(TWO, upgrade=replace(TWO.upgrade, max_unavailable=1))
    slow = checked(required("node-1"), asked=NOW - PULL_SECONDS, answered=NOW - PULL_SECONDS + 1)
    ready = pulling(candidate("node-2"), present=True)
    assert granted_to(one, pulling(slow), ready) == ["node-2"]
    repeated = decided(one, pulling(slow), ready).steps["node-1"].wait
    assert repeated is not None
    assert "more than 600 s" in repeated.detail


def test_a_failed_pull_lowers_no_capacity_and_its_end_starts_the_node() -> None:
    failed = pulling(candidate("node-1"), trouble=ERROR)
    assert granted_to(TWO, failed) == []
    assert granted_to(TWO, pulling(failed, present=True)) == ["node-1"]


def test_a_check_that_brings_no_pull_is_repeated() -> None:
    """The driver service may have missed it, with the stream of commands."""
    for seconds, asked in ((CHECK_VALID_SECONDS - 1, False), (CHECK_VALID_SECONDS, True)):
        at = NOW - seconds
        node = checked(required("node-1"), asked=at, answered=at + 1)
        assert ("node-1" in asked_of(decided(TWO, node))) is asked
        failed = pulling(node, trouble=ERROR)
        assert ("node-1" in asked_of(decided(TWO, failed))) is asked


def test_the_check_is_repeated_after_a_long_pull() -> None:
    old = checked(required("node-1"), asked=NOW - 100, answered=NOW - 99)
    assert asked_of(decided(TWO, pulling(old))) == {}
    assert asked_of(decided(TWO, pulling(old, present=True)))["node-1"].prefetch


def test_a_check_of_an_earlier_attempt_tells_nothing_about_this_one() -> None:
    asked = NOW - CHECK_VALID_SECONDS - 1
    before = checked(required("node-1"), asked=asked, answered=asked + 1)
    retried = with_record(before, since=NOW - 1)
    for node, is_late in ((before, True), (retried, False)):
        wait = decided(TWO, node).steps["node-1"].wait
        assert wait is not None
        assert ("for more than 60 s" in wait.detail) is is_late
    assert asked_of(decided(TWO, retried))["node-1"].prefetch
    ahead = with_record(checked(required("node-1")), since=NOW + 60)
    assert asked_of(decided(TWO, ahead)) == {}


def test_a_request_that_nothing_follows_is_repeated_and_loses_its_turn() -> None:
    one = replace(TWO, upgrade=replace(TWO.upgrade, max_unavailable=1))
    asked = NOW - CHECK_VALID_SECONDS
    lost = checked(required("node-1"), asked=asked, answered=asked + 1)
    ready = pulling(candidate("node-2"), present=True)
    assert granted_to(one, lost, ready) == ["node-2"]
    assert asked_of(decided(one, lost, ready))["node-1"].prefetch
    assert asked_of(decided(one, pulling(lost), ready)) == {}


def test_findings_come_first() -> None:
    node = pulling(checked(required("node-1"), FINDING), trouble=ERROR)
    assert FINDING.message in decided(TWO, node).waits["node-1"].detail


def test_without_preflight_waives_the_image() -> None:
    waived = replace(required("node-1"), request=NodeRequest.WITHOUT_PREFLIGHT)
    assert granted_to(TWO, waived) == ["node-1"]


def test_images_are_requested_ahead_for_as_many_nodes_as_may_be_unavailable() -> None:
    nodes = [required(f"node-{number:02}") for number in range(40)]
    many = replace(TWO, upgrade=replace(TWO.upgrade, max_unavailable=10))
    assert len(asked_of(decided(many, *nodes))) == 20
    assert len(asked_of(decided(TWO, *nodes))) == 2 + PREFLIGHTS_AHEAD
    later = [
        pulling(checked(node, asked=NOW - 90, answered=NOW - 89))
        if int(node.name[-2:]) >= 10
        else node
        for node in nodes
    ]
    asked = asked_of(decided(many, *later, now=instant()))
    assert sorted(asked) == [f"node-{number:02}" for number in range(10)]
