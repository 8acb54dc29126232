"""What the answers to people say of a node."""

from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Wait
from libs.rollout.views.node import NodeView
from services.scheduler.queries import foremost_waits, lacks_gpus
from tests.unit.rollout.builders import done, failed, in_flight_node, node, without_driver

WHY = "no NVIDIA driver is loaded"


def told(view: NodeView) -> bool:
    return lacks_gpus(replace(view, no_gpus=WHY))


def test_a_node_without_its_first_driver_lacks_no_gpus_yet() -> None:
    assert not told(node())
    restarting = without_driver(in_flight_node(UpgradeState.POD_RESTART_REQUIRED))
    assert not told(restarting)


def test_the_gpus_of_a_node_in_flight_are_withdrawn_on_purpose() -> None:
    assert not told(in_flight_node(UpgradeState.VALIDATION_REQUIRED))


def test_a_node_whose_driver_is_or_should_be_there_is_told() -> None:
    assert told(done())
    assert told(without_driver(done()))
    assert not lacks_gpus(done())


def test_of_many_waits_those_of_nodes_that_failed_or_are_in_flight_are_told() -> None:
    wait = Wait(code=WaitCode.BUDGET, detail="x" * 1000, since=1.0)
    nodes = [*(node(f"n-{number:03}") for number in range(150)), failed("z-2")]
    nodes.append(in_flight_node(name="z-1"))
    told = foremost_waits((each, wait) for each in nodes)
    assert [each.node for each in told][:4] == ["z-2", "z-1", "n-000", "n-001"]
    assert (len(told), {len(each.detail) for each in told}) == (100, {300})
