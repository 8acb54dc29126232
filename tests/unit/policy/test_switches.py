"""Each switch of a policy does what docs/policies.md says, or a condition says that it does not."""

from typing import Any

import pytest

from libs.policy.kinds.unsupported import ONLY_FOR_VMS
from libs.policy.unbuilt import ABSENT
from tests.unit.policy.fields import cases
from tests.unit.policy.situations import (
    DRIVER,
    Object,
    cluster_policy,
    crd_mode_policy,
    nvidia_driver,
)
from tests.unit.policy.switch_effects import changes
from tests.unit.policy.test_page import ROWS

ADDED = (None, True)
REMOVED = (True, None)
ON = (False, True)
ON_AS_TEXT = ("false", "true")
SET = (None, "true")
Effect = dict[str, tuple[Any, Any]]
"""What differs by name: when the switch is off, and when it is on."""

PEERMEM: Effect = {
    "driver container nvidia-peermem-ctr": ADDED,
    "driver GPU_DIRECT_RDMA_ENABLED": SET,
}
GDS: Effect = {
    "driver container nvidia-fs-ctr": ADDED,
    "driver GDS_ENABLED": SET,
    "sluice-device-plugin SLUICE_GDS_ENABLED": SET,
    "sluice-device-plugin SLUICE_MOFED_ENABLED": SET,
}
GDRCOPY: Effect = {
    "driver container nvidia-gdrcopy-ctr": ADDED,
    "driver GDRCOPY_ENABLED": SET,
    "sluice-device-plugin SLUICE_GDRCOPY_ENABLED": SET,
}
TOOLKIT: Effect = {
    "operands toolkit": ON,
    "sluice-driver-agent SLUICE_TOOLKIT": ON_AS_TEXT,
    "sluice-validator-agent SLUICE_TOOLKIT": ON_AS_TEXT,
}
WITHOUT_CDI = (
    "spec.toolkit is switched on, but Sluice gives GPUs to containers by CDI alone, which spec.cdi"
    " switches off: set spec.cdi.enabled to true, or spec.toolkit.enabled to false where another"
    " toolkit is installed"
)
WORKING: dict[tuple[str, str], Effect] = {
    ("ClusterPolicy", "driver.enabled"): {"DaemonSet driver": ADDED},
    ("ClusterPolicy", "driver.rdma.enabled"): PEERMEM,
    ("NVIDIADriver", "rdma.enabled"): PEERMEM,
    ("ClusterPolicy", "gds.enabled"): GDS,
    ("NVIDIADriver", "gds.enabled"): GDS,
    ("ClusterPolicy", "gdrcopy.enabled"): GDRCOPY,
    ("NVIDIADriver", "gdrcopy.enabled"): GDRCOPY,
    ("ClusterPolicy", "toolkit.enabled"): {
        **TOOLKIT,
        # Without our CDI specs, the device plugin tells another toolkit.
        "sluice-device-plugin SLUICE_DEVICE_LIST_STRATEGY": ("envvar", None),
        "sluice-device-plugin SLUICE_PASS_DEVICE_SPECS": ("true", None),
    },
    ("ClusterPolicy", "cdi.enabled"): {
        **TOOLKIT,
        "RuntimeClass nvidia-cdi": ADDED,
        "MissingOperands": (WITHOUT_CDI, None),
    },
    ("ClusterPolicy", "devicePlugin.enabled"): {
        "DaemonSet sluice-device-plugin": ADDED,
        "operands device_plugin": ON,
        # Without ours, the label is for another's, which is paused during an upgrade.
        "pause nvidia.com/gpu.deploy.device-plugin": REMOVED,
    },
    ("ClusterPolicy", "dra.enabled"): {
        "DaemonSet sluice-dra": ADDED,
        "DeviceClass gpu.nvidia.com": ADDED,
        "DeviceClass mig.nvidia.com": ADDED,
        "label nvidia.com/gpu.deploy.dra-driver": ADDED,
        "operands dra": ON,
    },
    ("ClusterPolicy", "dcgmExporter.enabled"): {
        "DaemonSet sluice-telemetry-agent": ADDED,
        "Service nvidia-dcgm-exporter": ADDED,
        "operands telemetry": ON,
        "pause nvidia.com/gpu.deploy.dcgm-exporter": REMOVED,
    },
    ("ClusterPolicy", "dcgmExporter.serviceMonitor.enabled"): {
        "ServiceMonitor nvidia-dcgm-exporter": ADDED
    },
    ("ClusterPolicy", "nodeStatusExporter.enabled"): {
        "Service nvidia-node-status-exporter": ADDED,
        "operands node_status": ON,
        "sluice-validator-agent SLUICE_EXPORT_NODE_STATUS": ON_AS_TEXT,
    },
    ("ClusterPolicy", "nodeStatusExporter.serviceMonitor.enabled"): {
        "ServiceMonitor nvidia-node-status-exporter": ADDED
    },
    ("ClusterPolicy", "gfd.enabled"): {
        "operands gpu_labels": ON,
        "sluice-discovery-agent SLUICE_GPU_LABELS": ON_AS_TEXT,
    },
    ("ClusterPolicy", "migManager.enabled"): {"operands mig_manager": ON},
}
OPERANDS = (
    *("dcgm", "sandboxWorkloads", "vfioManager", "sandboxDevicePlugin", "kataManager"),
    *("kataSandboxDevicePlugin", "vgpuManager", "vgpuDeviceManager", "ccManager"),
)
"""Those that do not exist here."""
SWITCHES = [
    (case.kind, case.path)
    for case in cases()
    if case.kind in ("ClusterPolicy", "NVIDIADriver") and case.path.endswith(".enabled")
]
WITHOUT_EFFECT = [path for kind, path in SWITCHES if (kind, path) not in WORKING]


def policies(kind: str, path: str) -> list[Object]:
    """Return policies in which a switch can have an effect."""
    parts = {part: {**DRIVER, "image": part, "version": "1"} for part in ("gds", "gdrcopy")}
    if kind == "NVIDIADriver":
        return [crd_mode_policy(), nvidia_driver("a", **parts)]
    return [
        cluster_policy(
            **parts,
            devicePlugin={"enabled": path != "dra.enabled"},
            nodeStatusExporter={"enabled": True},
            sandboxWorkloads={"enabled": path.partition(".")[0] in ONLY_FOR_VMS},
        )
    ]


def outcome(kind: str, path: str) -> str:
    return ROWS[kind][f"spec.{path}"][0]


def test_the_page_says_of_each_switch_whether_it_works() -> None:
    works = [switch for switch in SWITCHES if outcome(*switch) == "works"]
    assert sorted(works) == sorted(WORKING)
    assert {outcome("ClusterPolicy", path) for path in WITHOUT_EFFECT} == {"no effect"}
    sections = {path.partition(".")[0] for path in WITHOUT_EFFECT}
    assert set(OPERANDS) <= sections
    assert sorted(OPERANDS) == sorted((*ABSENT, *ONLY_FOR_VMS))


@pytest.mark.parametrize(("kind", "path"), WORKING)
def test_a_switch_does_what_the_page_says_and_no_more(kind: str, path: str) -> None:
    assert changes(policies(kind, path), path) == WORKING[kind, path]


@pytest.mark.parametrize("path", WITHOUT_EFFECT)
def test_a_switch_of_what_does_not_exist_here_changes_conditions_alone(path: str) -> None:
    section = path.partition(".")[0]
    is_operand = path == f"{section}.enabled" and section in OPERANDS
    found = changes(policies("ClusterPolicy", path), path)
    assert set(found) == ({"Accepted", "MissingOperands"} if is_operand else {"Accepted"})
    for off, on in found.values():
        assert f"spec.{path} (true)" in on or f"spec.{section} is switched on" in on
        assert f"spec.{section}" not in (off or "")


@pytest.mark.parametrize("section", ONLY_FOR_VMS)
def test_an_operand_for_virtual_machines_is_not_missed_without_them(section: str) -> None:
    found = changes([cluster_policy()], f"{section}.enabled")
    assert set(found) == {"Accepted"}
    assert f"set without effect here: spec.{section} (enabled)" in found["Accepted"][1]
