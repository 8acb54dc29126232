"""`sluice mig`: what labels ask for, what is there, and what is written."""

import pytest

from libs.contracts.device import DeviceMig, DeviceSpec, DeviceStatus, MigDevice
from libs.contracts.node import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from libs.ctl import mig
from libs.ctl.cluster import Device
from libs.ctl.failures import Failure
from libs.ctl.views.mig import mig_view
from libs.kube.views import Metadata
from tests.unit.ctl.test_views import text

SEVEN = DeviceMig(
    capable=True,
    mode="Enabled",
    devices=tuple(MigDevice(uuid=f"MIG-{each}", profile="1g.10gb") for each in range(7)),
)
WHOLE = DeviceMig(capable=True, mode="Disabled")


def node(**labels: str) -> Metadata:
    keys = {"config": MIG_CONFIG_LABEL, "state": MIG_STATE_LABEL}
    return Metadata(
        name="node-1", uid="u", labels={keys.get(key, key): value for key, value in labels.items()}
    )


def device(index: int, divided: DeviceMig | None) -> Device:
    return Device(
        metadata=Metadata(name=f"gpu-{index}"),
        spec=DeviceSpec(node="node-1", index=index, product="H100", memory=81559),
        status=DeviceStatus(mig=divided),
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "not reported"),
        (DeviceMig(), "has no MIG"),
        (WHOLE, "not divided"),
        (SEVEN, "7 x 1g.10gb"),
        (DeviceMig(capable=True, mode="Enabled"), "MIG without devices"),
        (
            DeviceMig(capable=True, mode="Disabled", pending="Enabled"),
            "not divided (MIG enabled after a reset)",
        ),
    ],
)
def test_a_division_in_words(given: DeviceMig | None, expected: str) -> None:
    assert mig.describe_division(given) == expected


@pytest.mark.parametrize(
    ("divisions", "expected"),
    [
        ([], ""),
        ([SEVEN], "7 x 1g.10gb"),
        ([SEVEN] * 4, "all 4: 7 x 1g.10gb"),
        ([SEVEN, SEVEN, WHOLE, SEVEN], "0-1,3: 7 x 1g.10gb; 2: not divided"),
    ],
)
def test_gpus_that_are_divided_alike_are_told_together(
    divisions: list[DeviceMig], expected: str
) -> None:
    there = {index: mig.describe_division(each) for index, each in enumerate(divisions)}
    assert mig.summary(there) == expected


def test_a_node_shows_what_is_asked_and_what_is_there() -> None:
    found = mig.mig_nodes(
        [node(config="all-1g.10gb", state="failed")], [device(1, WHOLE), device(0, SEVEN)]
    )
    shown = text(mig_view(found, width=100), 100).split()
    assert shown[4:13] == [
        "node-1", "all-1g.10gb", "failed", "0:", "7", "x", "1g.10gb;", "1:", "not",
    ]  # fmt: skip
    assert "`sluice why node-1` tells why" in text(mig_view(found, width=100), 100)


def test_another_division_evicts_pods_and_the_same_changes_nothing() -> None:
    edit = mig.ask_for(node(config="all-disabled"), "all-1g.10gb")
    assert edit.patch == {"metadata": {"labels": {MIG_CONFIG_LABEL: "all-1g.10gb"}}}
    assert "pods with GPUs on node-1 are evicted" in edit.risk
    assert mig.ask_for(node(config="all-disabled"), "all-disabled").patch == {}
    assert mig.ask_for(node(), "").patch == {}


def test_to_ask_for_nothing_leaves_the_gpus_as_they_are() -> None:
    edit = mig.ask_for(node(config="all-1g.10gb"), "")
    assert edit.patch == {"metadata": {"labels": {MIG_CONFIG_LABEL: None}}}
    assert edit.risk == ""


@pytest.mark.parametrize("switch", ["gpu.deploy.mig-manager", "gpu.deploy.operands"])
def test_a_node_whose_mig_is_left_to_others_is_refused(switch: str) -> None:
    left = Metadata(name="node-1", uid="u", labels={f"nvidia.com/{switch}": "false"})
    with pytest.raises(Failure, match="leaves the division of the GPUs of node-1 to others"):
        mig.ask_for(left, "all-1g.10gb")
