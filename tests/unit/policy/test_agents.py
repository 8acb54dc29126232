"""The agents' DaemonSets: selectors, environment, and disabled operands."""

import pytest

from libs.policy.render.rendered import Operand
from tests.unit.policy.situations import (
    SETTINGS,
    SITUATIONS,
    Object,
    Situation,
    cluster_policy,
    drivers,
    env_of,
    pod_of,
    rendered_names,
)

APPS = {
    "gpu-feature-discovery": {"kubernetes.io/os": "linux"},
    "nvidia-container-toolkit-daemonset": {"nvidia.com/gpu.present": "true"},
    "nvidia-device-plugin-daemonset": {"nvidia.com/gpu.deploy.device-plugin": "true"},
    "nvidia-operator-validator": {"nvidia.com/gpu.deploy.operator-validator": "true"},
    "nvidia-dcgm-exporter": {"nvidia.com/gpu.deploy.dcgm-exporter": "true"},
}


def test_agents_have_the_expected_selectors_and_no_credentials() -> None:
    rendering = SITUATIONS["one-driver-for-all"].rendering()
    for app, selector in APPS.items():
        pod = pod_of(rendering, app)
        assert pod["nodeSelector"] == selector
        assert pod["automountServiceAccountToken"] is False
        assert "runtimeClassName" not in pod
        tokens = [
            source["serviceAccountToken"]["audience"]
            for volume in pod["volumes"]
            for source in volume.get("projected", {}).get("sources", [])
        ]
        assert tokens == ["sluice"]
        assert env_of(pod["containers"][0])["SLUICE_NATS_URL"] == SETTINGS.env[0].value


def test_disabled_operands_are_not_rendered() -> None:
    rendering = SITUATIONS["pre-installed-and-switched-off"].rendering()
    assert rendered_names(rendering) == [
        ("RuntimeClass", "nvidia"),
        ("ConfigMap", "nvidia-driver-startup-probe"),
        ("DaemonSet", "nvidia-container-toolkit-daemonset"),
        ("DaemonSet", "nvidia-operator-validator"),
        ("DaemonSet", "gpu-feature-discovery"),
    ]
    driver = env_of(pod_of(rendering, "nvidia-container-toolkit-daemonset")["containers"][0])
    assert (driver["SLUICE_TOOLKIT"], driver["SLUICE_MIG_MANAGER"]) == ("false", "false")


def test_the_host_method_renders_no_driver_daemon_set() -> None:
    rendering = SITUATIONS["driver-on-the-host"].rendering()
    assert drivers(rendering) == []
    volumes = pod_of(rendering, "nvidia-container-toolkit-daemonset")["volumes"]
    assert {
        "name": "artefacts",
        "configMap": {"name": "sluice-driver-artefacts", "optional": True},
    } in volumes


def test_without_a_policy_only_agents_are_rendered() -> None:
    rendering = Situation([]).rendering()
    assert [name for kind, name in rendered_names(rendering) if kind == "DaemonSet"] == [
        "nvidia-container-toolkit-daemonset",
        "nvidia-operator-validator",
        "nvidia-device-plugin-daemonset",
        "nvidia-dcgm-exporter",
        "gpu-feature-discovery",
    ]


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_agent_has_its_own_writable_state_directory(name: str) -> None:
    rendering = SITUATIONS[name].rendering()
    kept: list[str] = []
    for app in APPS:
        if ("DaemonSet", app) not in rendered_names(rendering):
            continue
        pod = pod_of(rendering, app)
        (container,) = pod["containers"]
        folder = env_of(container)["SLUICE_STATE_DIR"]
        (mount,) = [one for one in container["volumeMounts"] if one["mountPath"] == folder]
        (volume,) = [one for one in pod["volumes"] if one["name"] == mount["name"]]
        assert "readOnly" not in mount
        assert volume["hostPath"]["type"] == "DirectoryOrCreate"
        kept.append(volume["hostPath"]["path"])
    assert len(set(kept)) == len(kept) >= 3


def test_agents_that_query_pod_resources_mount_the_kubelet_socket() -> None:
    for said, folder in (
        ("/data/kubelet", "/data/kubelet"),
        ("/data/kubelet/", "/data/kubelet"),
        ("", "/var/lib/kubelet"),
    ):
        policy = cluster_policy(hostPaths={"kubeletRootDir": said})
        rendering = Situation([policy]).rendering()
        wanted = {
            "nvidia-container-toolkit-daemonset": "pod-resources",
            "nvidia-operator-validator": "pod-resources",
            "nvidia-dcgm-exporter": "pod-resources",
            "nvidia-device-plugin-daemonset": "device-plugins",
        }
        for app, name in wanted.items():
            pod = pod_of(rendering, app)
            (path,) = [one["hostPath"]["path"] for one in pod["volumes"] if one["name"] == name]
            assert path == f"{folder}/{name}"
            mounts = pod["containers"][0]["volumeMounts"]
            assert f"/var/lib/kubelet/{name}" in [one["mountPath"] for one in mounts]


def test_empty_paths_and_names_mean_the_defaults() -> None:
    policy = cluster_policy(
        operator={"runtimeClass": ""},
        toolkit={"installDir": ""},
        hostPaths={"rootFS": "", "driverInstallDir": ""},
    )
    assert Situation([policy]).rendering() == Situation([cluster_policy()]).rendering()


@pytest.mark.parametrize(
    ("objects", "strategy"),
    [
        ([cluster_policy()], "none"),
        ([cluster_policy(mig={"strategy": "mixed"})], "mixed"),
        (SITUATIONS["driver-on-the-host"].objects, "single"),
    ],
)
def test_the_mig_strategy_comes_from_the_policy(objects: list[Object], strategy: str) -> None:
    rendering = Situation(objects).rendering()
    for app in (
        "gpu-feature-discovery",
        "nvidia-device-plugin-daemonset",
        "nvidia-operator-validator",
    ):
        assert env_of(pod_of(rendering, app)["containers"][0])["MIG_STRATEGY"] == strategy


def test_the_toolkit_section_takes_precedence_for_the_driver_agent() -> None:
    policy = cluster_policy(
        toolkit={"env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": 1}}},
        migManager={
            "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}],
            "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
            "imagePullPolicy": "Always",
        },
    )
    pod = pod_of(Situation([policy]).rendering(), "nvidia-container-toolkit-daemonset")
    (container,) = pod["containers"]
    said = env_of(container)
    assert (said["A"], said["B"]) == ("1", "3")
    assert container["resources"] == {"limits": {"cpu": "1", "memory": "1Gi"}}
    assert container["imagePullPolicy"] == "Always"


@pytest.mark.parametrize(("said", "most"), [("", 1), ("3", 3), ("20%", "20%"), ("0", 1), ("0%", 1)])
def test_max_unavailable_of_agent_daemon_sets(said: str, most: int | str) -> None:
    policy = cluster_policy(daemonsets={"rollingUpdate": {"maxUnavailable": said}})
    (made, *_) = [
        one for one in Situation([policy]).rendering().objects if one.operand is Operand.DISCOVERY
    ]
    strategy = made.object["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}
