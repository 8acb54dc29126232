"""Rendering of operands: golden files, effects of fields, and failures."""

import copy
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.policy.readiness import Observation
from libs.policy.status import policy_statuses
from tests.builders.machine_files import put as put_file
from tests.unit.policy import goldens
from tests.unit.policy.fields import MODEL, put
from tests.unit.policy.situations import (
    DRIVER,
    FILES,
    RED_HAT,
    SETTINGS,
    SITUATIONS,
    UBUNTU,
    Situation,
    cluster_policy,
    crd_mode_policy,
    driver_pod,
    driver_set,
    drivers,
    env_of,
    node,
    nvidia_driver,
    rendered_names,
)

Object = dict[str, Any]

# Goldens


@pytest.mark.parametrize("name", goldens.NAMES)
def test_rendered_objects_equal_the_golden_file(name: str) -> None:
    shown = list(yaml.safe_load_all(goldens.golden_path(name).read_text()))
    assert goldens.golden_objects(name) == shown


def test_every_golden_file_has_a_situation() -> None:
    assert {path.stem for path in goldens.GOLDEN.iterdir()} == set(goldens.NAMES)


# The driver


def test_a_driver_is_selected_by_its_label_only_and_never_rolled() -> None:
    daemon_sets = drivers(SITUATIONS["one-driver-for-all"].rendering())
    assert len(daemon_sets) == 2
    for daemon_set in daemon_sets:
        metadata, spec = daemon_set["metadata"], daemon_set["spec"]
        label = metadata["annotations"]["sluice.dev/driver"]
        assert metadata["name"] == f"sluice-driver-{label}"
        assert len(metadata["name"]) <= 57  # a pod's name adds six characters
        pod = spec["template"]["spec"]
        assert pod["nodeSelector"] == {"sluice.dev/driver": label}
        assert spec["updateStrategy"] == {"type": "OnDelete"}
        assert spec["template"]["metadata"]["labels"]["app"] == "nvidia-driver-daemonset"
        assert "affinity" not in pod
        assert "ownerReferences" not in metadata


def test_module_containers_get_network_driver_settings_and_parameters() -> None:
    spec = {**DRIVER, "kernelModuleConfig": {"name": "kernel-module-params"}}
    for on_host, variables in ((False, {}), (True, {"USE_HOST_MOFED": "true"})):
        rdma = {"enabled": True, "useHostMofed": on_host}
        driver, peermem = driver_pod(cluster_policy(driver={**spec, "rdma": rdma}))["containers"]
        always = {"NVIDIA_VISIBLE_DEVICES": "void", "GPU_DIRECT_RDMA_ENABLED": "true"}
        assert env_of(peermem) == {**always, **variables}
        for container in (driver, peermem):
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert "/drivers/nvidia.conf" in paths


@pytest.mark.parametrize(
    ("on_host", "cards", "ready", "code"),
    [
        (False, ("0x8086", "0x10de"), False, 0),
        (False, ("0x8086", "0x15b3"), False, None),
        (False, ("0x15b3",), True, 0),
        (True, ("0x15b3",), False, None),
        (True, ("0x15b3",), True, 0),
    ],
)
def test_a_driver_with_rdma_waits_for_the_network_driver_first(
    tmp_path: Path, *, on_host: bool, cards: tuple[str, ...], ready: bool, code: int | None
) -> None:
    rdma = {"enabled": True, "useHostMofed": on_host}
    containers = driver_pod(cluster_policy(driver={**DRIVER, "rdma": rdma}))["initContainers"]
    assert [each["name"] for each in containers] == ["image-pull", "network-driver", "gate"]
    shell, option, script = containers[1]["command"]
    folders = [f"{tmp_path}/{name}" for name in ("devices", "drivers", "modules")]
    for path, own in zip(
        ("/sys/bus/pci/devices", "/run/mellanox/drivers", "/proc/modules"), folders, strict=True
    ):
        script = script.replace(path, own)
    for number, vendor in enumerate(cards):
        put_file(tmp_path, f"devices/{number}/vendor", f"{vendor}\n")
    put_file(tmp_path, "modules", "mlx5_core 1 0 - Live\n" if ready and on_host else "ext4 1\n")
    if ready and not on_host:
        put_file(tmp_path, "drivers/.driver-ready", "")
    # The wait itself is the only call of sleep.
    ended = subprocess.run(
        [shell, option, script.replace("sleep 5", "exit 9")], check=False, capture_output=True
    )
    assert ended.returncode == (9 if code is None else code)
    assert (b"waiting for" in ended.stdout) == (code is None)


def test_peermem_is_probed_as_the_image_says() -> None:
    peermem = driver_pod(cluster_policy(driver={**DRIVER, "rdma": {"enabled": True}}))[
        "containers"
    ][1]
    for probe, failures in (("startupProbe", 120), ("livenessProbe", 1)):
        assert peermem[probe]["exec"]["command"] == ["nvidia-driver", "probe_nvidia_peermem"]
        assert peermem[probe]["failureThreshold"] == failures


def test_a_driver_pod_mounts_no_file_of_sysfs_that_a_kernel_may_lack() -> None:
    """Not every kernel takes memory while it runs, and a pod waits for all that it mounts."""
    pod = driver_pod(cluster_policy())
    volumes = {each["name"]: each.get("hostPath") for each in pod["volumes"]}
    path = "/sys/devices/system"
    assert volumes["host-sys-devices-system"] == {"path": path, "type": "Directory"}
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert mounts["host-sys-devices-system"] == path
    assert not any(
        "auto_online_blocks" in (each or {}).get("path", "") for each in volumes.values()
    )


def test_no_runtime_injects_a_driver_into_driver_containers() -> None:
    spec = {**DRIVER, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "mine"}]}
    parts = {name: {"enabled": True, "image": "r/part:1"} for name in ("gds", "gdrcopy")}
    for driver, visible in ((DRIVER, "void"), (spec, "mine")):
        pod = driver_pod(cluster_policy(driver=driver, **parts))
        first, *others = pod["containers"]
        assert env_of(first)["NVIDIA_VISIBLE_DEVICES"] == visible
        assert [env_of(each)["NVIDIA_VISIBLE_DEVICES"] for each in others] == ["void", "void"]
        assert env_of(pod["initContainers"][0]) == {"NVIDIA_VISIBLE_DEVICES": "void"}


@pytest.mark.parametrize(
    ("given", "pool", "cluster"),
    [
        ([], ["init"], ["init"]),
        (["--max-threads=4"], ["init", "--max-threads=4"], ["--max-threads=4"]),
        (["init", "-a"], ["init", "-a"], ["init", "-a"]),
    ],
)
def test_arguments_of_an_nvidia_driver_follow_init(
    given: list[str], pool: list[str], cluster: list[str]
) -> None:
    of_pool = [crd_mode_policy(), nvidia_driver("a", default=True, args=given)]
    of_cluster = [cluster_policy(driver={**DRIVER, "args": given})]
    for objects, wanted in ((of_pool, pool), (of_cluster, cluster)):
        assert driver_pod(*objects)["containers"][0]["args"] == wanted


@pytest.mark.parametrize(
    ("given", "variable"),
    [("auto", {}), *((each, {"KERNEL_MODULE_TYPE": each}) for each in ("open", "proprietary"))],
)
def test_the_type_of_kernel_modules_is_told_to_every_driver_container(
    given: str, variable: dict[str, str]
) -> None:
    fields = {"kernelModuleType": given}
    of_cluster = [cluster_policy(driver={**DRIVER, **fields})]
    of_pool = [crd_mode_policy(), nvidia_driver("a", default=True, **fields)]
    of_kernels = [cluster_policy(driver={**DRIVER, **fields, "usePrecompiled": True})]
    for objects in (of_cluster, of_pool, of_kernels):
        rendered = drivers(Situation(objects).rendering())
        assert rendered
        for daemon_set in rendered:
            env = env_of(daemon_set["spec"]["template"]["spec"]["containers"][0])
            assert env.items() >= variable.items()
            assert ("KERNEL_MODULE_TYPE" in env) is bool(variable)


def test_policies_override_defaults_but_not_reserved_names() -> None:
    spec = {
        **DRIVER,
        "kernelModuleType": "open",
        "env": [
            {"name": "KERNEL_MODULE_TYPE", "value": "proprietary"},
            {"name": "DRIVER_CONFIG_DIGEST", "value": "mine"},
        ],
        "startupProbe": {"periodSeconds": 3},
    }
    common = {"labels": {"app": "mine", "sluice.dev/driver": "mine", "team": "ml"}}
    daemon_set = driver_set(cluster_policy(driver=spec, daemonsets=common))
    template = daemon_set["spec"]["template"]
    label = daemon_set["metadata"]["annotations"]["sluice.dev/driver"]
    assert template["metadata"]["labels"]["sluice.dev/driver"] == label
    assert template["metadata"]["labels"]["app"] == "nvidia-driver-daemonset"
    assert template["metadata"]["labels"]["team"] == "ml"
    driver, gate = template["spec"]["containers"][0], template["spec"]["initContainers"][1]
    digest = daemon_set["metadata"]["annotations"]["sluice.dev/install-digest"]
    assert env_of(driver)["KERNEL_MODULE_TYPE"] == "proprietary"
    assert env_of(driver)["DRIVER_CONFIG_DIGEST"] == env_of(gate)["DRIVER_CONFIG_DIGEST"] == digest
    assert env_of(gate)["POD_UID"] is None
    probe = driver["startupProbe"]
    assert (probe["periodSeconds"], probe["failureThreshold"]) == (3, 120)


def test_a_new_sluice_release_changes_only_the_gate_image() -> None:
    images = replace(SETTINGS.images, driver="r.example/sluice/driver:2.0")
    newer_settings = replace(SETTINGS, images=images)
    situation = SITUATIONS["one-driver-for-all"]
    before, after = drivers(situation.rendering()), drivers(situation.rendering(newer_settings))
    for old, new in zip(before, after, strict=True):
        new = copy.deepcopy(new)  # noqa: PLW2901 - so that it may be changed
        gate = new["spec"]["template"]["spec"]["initContainers"][1]
        assert gate["image"] == images.driver
        gate["image"] = SETTINGS.images.driver
        assert new == old


# What changes nothing


@pytest.mark.parametrize("name", ["one-driver-for-all", "two-drivers"])
def test_policies_that_are_created_again_render_the_same(name: str) -> None:
    situation = SITUATIONS[name]
    again = copy.deepcopy(list(situation.objects))
    for obj in again:
        obj["metadata"]["uid"] = f"new-{obj['metadata']['name']}"
    created_again = Situation(again, situation.nodes).rendering()
    assert created_again.objects == situation.rendering().objects


@pytest.mark.parametrize(
    "label", [{"helm.sh/chart": "gpu-operator-v26.9.0"}, {"app.kubernetes.io/version": "v26.9.0"}]
)
def test_the_version_of_the_chart_changes_no_object(label: Object) -> None:
    for before, after in (
        ([cluster_policy()], [cluster_policy(daemonsets={"labels": label})]),
        (
            [crd_mode_policy(), nvidia_driver("a", default=True)],
            [crd_mode_policy(), nvidia_driver("a", default=True, labels=label)],
        ),
    ):
        assert Situation(after).rendering() == Situation(before).rendering()


def test_without_a_cluster_policy_what_it_rendered_is_held() -> None:
    for objects in ([], [nvidia_driver("a", default=True)]):
        rendering = Situation(objects).rendering()
        assert rendered_names(rendering) == [STARTUP_PROBE]
        assert rendering.cluster_operands_held


STARTUP_PROBE = ("ConfigMap", "sluice-driver-startup-probe")


# Failures


@pytest.mark.parametrize(
    ("objects", "config_maps", "field", "words"),
    [
        ([cluster_policy(driver={})], FILES, "spec.driver.image", "names no image to run"),
        (
            [
                crd_mode_policy(),
                nvidia_driver("a", repository="", version="", image="nvcr.io/nvidia/driver"),
            ],
            FILES,
            "spec.image",
            "has no tag",
        ),
        (
            [cluster_policy(gds={"enabled": True, "image": "r/fs"})],
            FILES,
            "spec.gds.image",
            "has no tag",
        ),
        (
            [crd_mode_policy(), nvidia_driver("a", repoConfig={"name": "apt-sources"})],
            {},
            "spec.repoConfig",
            "names a ConfigMap that does not exist",
        ),
        (
            [cluster_policy(driver={**DRIVER, "certConfig": {"name": "registry-ca"}})],
            {"registry-ca": []},
            "spec.driver.certConfig",
            "names a ConfigMap that is empty",
        ),
    ],
)
def test_a_driver_that_cannot_be_rendered_is_a_failure(
    objects: list[Object], config_maps: dict[str, list[str]], field: str, words: str
) -> None:
    rendering = Situation(objects, config_maps=config_maps).rendering()
    assert drivers(rendering) == []
    (failure,) = rendering.failures
    assert failure.finding.field == field
    assert words in failure.finding.problem
    assert failure.finding.remedy


def test_config_files_are_mounted_where_the_system_reads_them() -> None:
    spec = {**DRIVER, "repoConfig": {"configMapName": "apt-sources"}}
    for system, directory in ((UBUNTU, "/etc/apt/sources.list.d"), (RED_HAT, "/etc/yum.repos.d")):
        (daemon_set,) = drivers(Situation([cluster_policy(driver=spec)], [system]).rendering())
        mounts = daemon_set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        assert f"{directory}/ubuntu.list" in [mount["mountPath"] for mount in mounts]
    unsupported = node("z", system="plan9", version="4")
    (failure,) = Situation([cluster_policy(driver=spec)], [unsupported]).rendering().failures
    assert "is not supported by the driver image of plan9" in str(failure.finding)


def test_errors_in_the_cluster_policy_hold_cluster_operands() -> None:
    policy = cluster_policy(toolkit={"enabled": "no"})
    rendering = Situation([policy]).rendering()
    assert (rendered_names(rendering), rendering.cluster_operands_held) == ([STARTUP_PROBE], True)


def test_the_startup_probe_script_is_always_rendered() -> None:
    conflicting = [
        crd_mode_policy(),
        *(nvidia_driver(name, nodeSelector={"a": "b"}) for name in "xy"),
    ]
    for situation in (
        Situation(conflicting, [node("n", a="b")]),
        SITUATIONS["driver-on-the-host"],
        Situation([]),
    ):
        rendering = situation.rendering()
        assert drivers(rendering) == []
        assert STARTUP_PROBE in rendered_names(rendering)


def test_rendering_does_not_depend_on_the_order_of_objects() -> None:
    situation = SITUATIONS["two-drivers"]
    reversed_situation = Situation(situation.objects[::-1], situation.nodes[::-1])
    assert reversed_situation.rendering() == situation.rendering()


# Arbitrary input

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(
    st.lists(st.tuples(st.sampled_from(sorted(MODEL["ClusterPolicy"])), JUNK), max_size=4),
    st.lists(st.tuples(st.sampled_from(sorted(MODEL["NVIDIADriver"])), JUNK), max_size=4),
)
def test_broken_policies_do_not_raise(
    cluster: list[tuple[str, Any]], pool: list[tuple[str, Any]]
) -> None:
    objects = [cluster_policy(), nvidia_driver("a"), nvidia_driver("b", default=True)]
    for obj, changes in zip(objects, (cluster, pool), strict=False):
        for path, value in changes:
            try:
                put(obj["spec"], path, value)
            except (AttributeError, TypeError):
                continue  # a parent field already has a value of another type
    situation = Situation(objects)
    rendering = situation.rendering()
    verdicts = situation.pools().verdicts
    statuses = policy_statuses(situation.pools(), situation.placement(), rendering, Observation())
    assert [status.name for status in statuses] == [verdict.name for verdict in verdicts]
    msgspec.json.encode([rendered.object for rendered in rendering.objects])


def test_a_startup_taint_is_tolerated_and_replaces_no_driver() -> None:
    policy = cluster_policy()
    strategy = {
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "RolloutStrategy",
        "metadata": {"name": "s", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"pool": "clusterpolicy-cluster-policy", "startupTaint": "example.com/starting"},
    }
    without, rendered = (
        Situation(objects).rendering().objects for objects in ([policy], [policy, strategy])
    )
    added = {"key": "example.com/starting", "operator": "Exists"}
    assert [each.driver for each in rendered] == [each.driver for each in without]
    for before, after in zip(without, rendered, strict=True):
        if after.kind != "DaemonSet":
            assert after.object == before.object
            continue
        pod, old_pod = (each.object["spec"]["template"]["spec"] for each in (after, before))
        tolerates_all = {"operator": "Exists"} in old_pod["tolerations"]
        expected = [*old_pod["tolerations"], *([] if tolerates_all else [added])]
        assert pod == {**old_pod, "tolerations": expected}
