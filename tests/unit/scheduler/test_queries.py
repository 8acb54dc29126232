"""What the answers to people say of a node."""

from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.rollout.views.node import NodeView
from services.scheduler.queries import lacks_gpus
from tests.unit.rollout.builders import done, in_flight_node, node, without_driver

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
