"""Which GPUs are not to be used, and the switches of the XIDs."""

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.contracts.gpus import GpuProblem, RecoveryAction, XidCode
from libs.contracts.health import HealthState
from libs.health.node import Sweep, node_health
from libs.health.record import Moment
from services.driver.plugin.sickness import SKIPPED, Sickness, XidSwitches, switches
from tests.unit.driver.plugin.builders import gpu

GPUS = (gpu(0, recovery=RecoveryAction.NONE), gpu(1, recovery=RecoveryAction.NONE))


class Node:
    """The GPUs, swept once a second."""

    def __init__(self, xids: XidSwitches) -> None:
        self.xids = xids
        self.sickness = Sickness()
        self.now = 1000.0

    def sweep(
        self,
        *xids: int,
        gpus: tuple[Gpu, ...] = GPUS,
        seconds: float = 1.0,
        reloaded: bool = False,
    ) -> list[str]:
        """Return the GPUs that are not to be used; the XIDs are of the first one."""
        self.now += seconds
        sweep = Sweep(gpus=gpus, xids={"GPU-0": xids} if xids else {}, reloaded=reloaded)
        self.sickness = self.sickness.after(sweep, Moment(self.now, self.now), self.xids)
        return sorted(self.sickness.reasons(self.xids))


@pytest.mark.parametrize(
    ("disable", "enable", "expected"),
    [
        ("", "", XidSwitches()),
        ("all", "", XidSwitches(off=True)),
        ("XIDs,79", "", XidSwitches(off=True)),
        ("79, 48,,x,-1,4.5", "", XidSwitches(skipped=SKIPPED | {48, 79})),
        ("", "13", XidSwitches(skipped=SKIPPED - {13}, enabled=frozenset({13}))),
        ("79", "79", XidSwitches(skipped=SKIPPED, enabled=frozenset({79}))),
        ("79", "all", XidSwitches(skipped=frozenset(), every=True)),
        ("all", "79", XidSwitches(off=True)),
        ("all", "ALL", XidSwitches(skipped=frozenset(), every=True)),
    ],
)
def test_the_two_lists_say_which_xids_count(
    disable: str, enable: str, expected: XidSwitches
) -> None:
    assert switches(disable, enable) == expected


@pytest.mark.parametrize(
    ("disable", "enable", "xid", "sick"),
    [
        ("", "", 79, True),
        ("", "", 13, False),
        ("", "", 31, False),
        ("79", "", 79, False),
        ("all", "", 79, False),
        ("79", "79", 79, True),
        ("", "13", 13, True),
        ("all", "13", 13, False),
        ("", "all", 13, True),
        ("all", "all", 31, True),
    ],
)
def test_an_xid_counts_by_the_switches(disable: str, enable: str, xid: int, sick: bool) -> None:
    node = Node(switches(disable, enable))
    assert node.sweep() == []
    assert node.sweep(xid) == (["GPU-0"] if sick else [])
    assert node.sweep(seconds=3600.0) == (["GPU-0"] if sick else [])


def test_a_gpu_is_well_again_as_libs_health_says() -> None:
    node = Node(switches("", ""))
    node.sweep()
    assert node.sweep(79) == ["GPU-0"]
    lost = (gpu(0, problem=GpuProblem.RESET_REQUIRED), GPUS[1])
    assert node.sweep(gpus=lost) == ["GPU-0"]
    assert node.sweep() == ["GPU-0"]
    assert node.sweep(seconds=120.0) == []


def test_an_xid_of_a_mig_instance_takes_that_instance_and_ends_with_it() -> None:
    node, divided = Node(switches("", "13")), (gpu(0, "1g.10gb", "1g.10gb", "2g.20gb"), GPUS[1])
    node.sweep(gpus=divided)
    first, second, third = divided[0].migs
    node.sweep(XidCode(48, second.gpu_instance), XidCode(13, third.gpu_instance), gpus=divided)
    reasons = node.sickness.reasons(node.xids, divided)
    assert reasons.keys() == {second.uuid, third.uuid}
    assert reasons[second.uuid].startswith(f"XID 48 of GPU instance {second.gpu_instance}: ")
    (health, _) = node_health(node.sickness.records).gpus
    assert (health.state, health.findings[0].gpu_instances) == (
        HealthState.DEGRADED,
        (second.gpu_instance,),
    )
    anew = (replace(divided[0], migs=(first,)), GPUS[1])
    node.sweep(gpus=anew)
    assert second.uuid not in node.sickness.reasons(node.xids, divided)


@pytest.mark.parametrize("code", [XidCode(95, 7), XidCode(79, 7), XidCode(48, 70), XidCode(48)])
def test_an_xid_of_more_than_an_instance_takes_the_whole_gpu(code: XidCode) -> None:
    node, divided = Node(XidSwitches()), (gpu(0, "1g.10gb", "1g.10gb"), GPUS[1])
    node.sweep(gpus=divided)
    assert node.sweep(code, gpus=divided) == ["GPU-0"]


def test_an_enabled_xid_counts_until_the_driver_is_loaded_anew() -> None:
    node = Node(switches("", "13"))
    node.sweep()
    assert node.sweep(13) == ["GPU-0"]
    assert node.sickness.reasons(node.xids) == {"GPU-0": "XID 13"}
    assert node.sweep(reloaded=True) == []


def test_a_reason_says_what_is_wrong_and_what_to_do() -> None:
    node = Node(switches("", ""))
    node.sweep()
    node.sweep(79)
    (reason,) = node.sickness.reasons(node.xids).values()
    assert reason.startswith("XID 79: ")
    assert reason.count(": ") >= 2
