"""Which changes of a failed node are only another crash."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.forecast.play import only_crash_changed
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import NEW, NOW, driver_pod, failed, lease


def crashing(restarts: int, **changes: object) -> NodeView:
    pod = driver_pod(NEW, ready=False, started=None, restarts=restarts, trouble="it crashes")
    return replace(failed(driver_pods=(pod,)), **changes)


def test_another_crash_of_a_failed_node_is_only_a_crash() -> None:
    starts = replace(crashing(3).driver_pods[0], started=NOW, trouble="")
    assert only_crash_changed(crashing(3), crashing(4))
    assert only_crash_changed(crashing(3), crashing(3, driver_pods=(starts,)))
    assert only_crash_changed(crashing(3, driver_pods=(starts,)), crashing(4))


READY = driver_pod(NEW, ready=True)

OTHER_CHANGES: dict[str, Callable[[NodeView], NodeView]] = {
    "its driver is up": lambda node: replace(node, driver_pods=(READY,)),
    "it is leased": lambda node: replace(node, lease=lease()),
    "it is cordoned": lambda node: replace(node, cordoned=not node.cordoned),
    "it did not fail": lambda node: replace(node, state=UpgradeState.UPGRADE_DONE),
}


@pytest.mark.parametrize("change", OTHER_CHANGES)
def test_any_other_change_is_more_than_a_crash(change: str) -> None:
    assert not only_crash_changed(crashing(3), OTHER_CHANGES[change](crashing(4)))
    assert not only_crash_changed(OTHER_CHANGES[change](crashing(3)), crashing(4))


def both(change: Callable[[NodeView], NodeView]) -> tuple[NodeView, NodeView]:
    return change(crashing(3)), change(crashing(4))


@pytest.mark.parametrize("change", ["it is leased", "it did not fail"])
def test_a_crash_counts_on_a_leased_node_and_on_a_node_that_did_not_fail(change: str) -> None:
    assert not only_crash_changed(*both(OTHER_CHANGES[change]))


def test_added_and_deleted_nodes_are_changes() -> None:
    assert not only_crash_changed(None, crashing(4))
    assert not only_crash_changed(crashing(4), None)
