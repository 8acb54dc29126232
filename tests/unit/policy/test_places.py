"""A field that works changes the place that it names, to its value, and nothing of other programs.

Most fields are found by their own names; `PLACES` says where the others are. Switches are compared
exactly in `test_switches`.
"""

import re
from typing import Any

import pytest

from tests.unit.policy.fields import FieldCase
from tests.unit.policy.places import Changes, changes, places, values_of
from tests.unit.policy.test_effects import CASES, ONE_VALUE, changed, policies, works

DRIVER = ("DaemonSet driver",)
PLUGIN = ("DaemonSet sluice-device-plugin",)
DISCOVERY = ("DaemonSet sluice-discovery-agent",)
AGENT = ("DaemonSet sluice-driver-agent",)
TELEMETRY = ("DaemonSet sluice-telemetry-agent",)
VALIDATOR = ("DaemonSet sluice-validator-agent",)
AGENTS = (*PLUGIN, *DISCOVERY, *AGENT, *TELEMETRY, *VALIDATOR)
EVERY = (*DRIVER, *AGENTS)
PROGRAMS: dict[str, tuple[str, ...]] = {
    "mig": (*PLUGIN, *VALIDATOR, "operands migStrategy"),
    "operator": (*AGENT, "RuntimeClass"),
    "hostPaths": EVERY,
    "daemonsets": EVERY,
    "driver": (*DRIVER, *PLUGIN, "pool"),
    "gds": DRIVER,
    "gdrcopy": DRIVER,
    "dcgmExporter": (*TELEMETRY, "Service nvidia-dcgm", "ServiceMonitor nvidia-dcgm"),
    "nodeStatusExporter": (*VALIDATOR, "ServiceMonitor nvidia-node-status"),
    "sandboxWorkloads": (*DRIVER, "pool"),
    "migManager": (*AGENT, "operands migConfig", "operands migMayReboot"),
    "toolkit": AGENT,
    "devicePlugin": (*PLUGIN, "operands pluginConfigs"),
    "validator": (*VALIDATOR, "operands validationPod"),
    "cdi": AGENT,
    "gfd": DISCOVERY,
}
"""Whose places a section of a ClusterPolicy changes."""
OF_KIND = {
    "NVIDIADriver": (*DRIVER, "pool nvidiadriver"),
    "GPUClusterPolicy": (
        *("pool gpuclusterpolicy", "operands", *AGENT, *PLUGIN),
        *("DaemonSet sluice-dra", "DeviceClass"),
    ),
    "RolloutStrategy": (*EVERY, "pool clusterpolicy"),
}
IMAGE = ("repository", "image", "version")
"""Parts of the name of an image."""
NEW_IMAGE = "other.example/other:1-5.15.0-139-generic-ubuntu22.04"
PRECOMPILED = {
    r"driver metadata\.labels\.nvidia\.com/precompiled": "true",
    r"\[nvidia-driver-ctr\]\.image": NEW_IMAGE,
    r"\[nvidia-peermem-ctr\]\.image": NEW_IMAGE,
}
HOST_MOFED = {
    r"\[nvidia-driver-ctr\]\.env\[USE_HOST_MOFED\]": "true",
    r"\[nvidia-peermem-ctr\]\.env\[USE_HOST_MOFED\]": "true",
    r"volumes\[run-mellanox-drivers\]\.name": None,
    r"volumes\[mlnx-ofed-usr-src\]\.hostPath\.path": "/usr/src",
}
MODULES = {r"\[nvidia-driver-ctr\]\.env\[KERNEL_MODULE_TYPE\]": "open"}
SECRETS = {r"\[nvidia-driver-ctr\]\.envFrom\[0\]\.secretRef\.name": "s"}
REPOSITORY = {
    r"volumes\[repo-config\]\.configMap\.name": "r",
    r"\[nvidia-driver-ctr\]\.volumeMounts\[repo-config\]\.mountPath": (
        "/etc/apt/sources.list.d/a.list"
    ),
}
DRAIN = {r"^pool .* upgrade\.drain\.enable": True}
EVICTION = {
    r"^pool .* upgrade\.podDeletion\.force": True,
    r"^pool .* upgrade\.podDeletion\.timeoutSeconds": 30,
    r"^pool .* upgrade\.podDeletion\.deleteEmptyDir": True,
}
PLACES: dict[str, dict[str, Any]] = {
    "mig.strategy": {
        **{rf"{each} .*env\[SLUICE_MIG_STRATEGY\]": "mixed" for each in (*PLUGIN, *VALIDATOR)},
        r"^operands migStrategy": "mixed",
    },
    "operator.runtimeClass": {
        r"^-RuntimeClass nvidia": None,
        r"^\+RuntimeClass gpu": None,
        rf"{AGENT[0]} .*env\[SLUICE_RUNTIME_CLASS\]": "gpu",
    },
    "hostPaths.kubeletRootDir": {
        rf"{PLUGIN[0]} .*\[device-plugins\]\.hostPath\.path": "/data/kubelet/device-plugins",
        **{
            rf"{each} .*\[pod-resources\]\.hostPath\.path": "/data/kubelet/pod-resources"
            for each in (*PLUGIN, *TELEMETRY, *VALIDATOR)
        },
    },
    "hostPaths.rootFS": {
        **{rf"{each} .*\[host-root\]\.hostPath\.path": "/host" for each in AGENTS},
        r"driver .*\[host-os-release\]\.hostPath\.path": "/host/etc/os-release",
    },
    "hostPaths.driverInstallDir": {
        **{rf"{each} .*env\[SLUICE_DRIVER_ROOT\]": "/run/driver" for each in AGENTS},
        r"driver .*volumes\[driver-install-dir\]\.hostPath\.path": "/run/driver",
        r"driver .*volumes\[nv-firmware\]\.hostPath\.path": "/run/driver/lib/firmware",
    },
    "daemonsets.podSecurityContext": {
        rf"{each} .*spec\.securityContext\.runAsUser": 0 for each in EVERY
    },
    "podSecurityContext": {r"driver .*spec\.securityContext\.runAsUser": 0},
    **dict.fromkeys(("driver.usePrecompiled", "usePrecompiled"), PRECOMPILED),
    **dict.fromkeys(("driver.kernelModuleType", "kernelModuleType"), MODULES),
    **dict.fromkeys(("driver.rdma.useHostMofed", "rdma.useHostMofed"), HOST_MOFED),
    **dict.fromkeys(("driver.secretEnv", "secretEnv"), SECRETS),
    **dict.fromkeys(("driver.manager.env", "manager.env"), DRAIN),
    **dict.fromkeys(
        ("driver.upgradePolicy.gpuPodDeletion", "upgradePolicy.gpuPodDeletion"), EVICTION
    ),
    "driver.repoConfig.configMapName": REPOSITORY,
    "driver.useNvidiaDriverCRD": {
        r"^-DaemonSet driver": None,
        r"^pool clusterpolicy-cluster-policy nodes\[0\]": None,
    },
    **{
        f"{part}.serviceMonitor.additionalLabels": {r"^ServiceMonitor .* metadata\.labels\.a": "b"}
        for part in ("dcgmExporter", "nodeStatusExporter")
    },
    "sandboxWorkloads.defaultWorkload": {
        r"^-DaemonSet driver": None,
        r"^pool clusterpolicy-cluster-policy nodes\[0\]": None,
    },
    "migManager.config.name": {r"^operands migConfig": "layouts"},
    "migManager.env": {r"^operands migMayReboot": True},
    "validator.plugin.env": {r"^operands validationPod": True},
    "cdi.nriPluginEnabled": {rf"{AGENT[0]} .*env\[SLUICE_NRI\]": "true"},
    "devicePlugin.config.default": {rf"{PLUGIN[0]} .*env\[SLUICE_PLUGIN_CONFIG\]": "d"},
    "default": {r"^\+DaemonSet driver": None, r"^pool nvidiadriver-b nodes\[0\]": "a"},
    "nodeSelector": {
        r"^-DaemonSet driver": None,
        r"^pool nvidiadriver-a nodes\[0\]": None,
    },
    "nodeAffinity": {r"^pool nvidiadriver-a nodes\[0\]": "c"},
    "driverType": {r"^-DaemonSet driver": None, r"^pool .* held\[0\]\.field": "spec.driverType"},
    "driver.enabled": {
        rf"{AGENT[0]} .*env\[SLUICE_ARTEFACTS\]": None,
        r"^operands artefacts": None,
        r"^pool gpuclusterpolicy-a version": None,
    },
    "cuda.enabled": {r"^pool gpuclusterpolicy-a cuda": ""},
    "devicePlugin.enabled": {r"^-DaemonSet sluice-device-plugin": None},
    "dra.enabled": {
        r"^\+DaemonSet sluice-dra": None,
        r"^\+DeviceClass gpu\.nvidia\.com": None,
        r"^\+DeviceClass mig\.nvidia\.com": None,
    },
    "migManager.enabled": {r"^operands migManager": False},
    "cuda.version": {r"^pool gpuclusterpolicy-a cuda": "13.0"},
    "pool": {r"^pool clusterpolicy-cluster-policy strategy\.retries": None},
}
"""Where fields are that are not found by their names: what a place becomes; None: it goes."""


def is_compared(case: FieldCase) -> bool:
    """Return whether `test_switches` compares all that the field changes; or nothing can change."""
    is_switch = case.path.endswith(".enabled") and case.kind in ("ClusterPolicy", "NVIDIADriver")
    return is_switch or case.path in ONE_VALUE


FOUND = [case for case in CASES if works(case) and not is_compared(case)]


def effect(case: FieldCase) -> Changes:
    base = policies(case)
    return changes(places(base), places(changed(base, case)))


def is_named(found: Changes, case: FieldCase) -> bool:
    """Return whether each value of a field is at a place with its name, or part of an image."""
    word, values = case.path.rpartition(".")[2], values_of(case.value)
    own = {
        str(after) for place, (_, after) in found.items() if word in re.split(r"[.\[\] ]", place)
    }
    if {str(each) for each in values} <= own:
        return True
    images = [str(after) for place, (_, after) in found.items() if place.endswith(".image")]
    return word in IMAGE and bool(images) and all(str(values[0]) in each for each in images)


@pytest.mark.parametrize("case", FOUND, ids=str)
def test_a_field_changes_the_place_that_it_names(case: FieldCase) -> None:
    found = effect(case)
    expected = PLACES.get(case.path)
    if expected is None:
        assert is_named(found, case), found
        return
    for pattern, value in expected.items():
        hits = [after for place, (_, after) in found.items() if re.search(rf"{pattern}$", place)]
        assert hits == [value], pattern


@pytest.mark.parametrize("case", FOUND, ids=str)
def test_a_field_changes_nothing_of_other_programs(case: FieldCase) -> None:
    allowed = OF_KIND.get(case.kind) or PROGRAMS[case.path.partition(".")[0]]
    assert [each for each in effect(case) if not each.lstrip("+-").startswith(allowed)] == []


def test_no_place_is_said_of_a_field_that_is_not_there() -> None:
    assert PLACES.keys() <= {case.path for case in FOUND}
