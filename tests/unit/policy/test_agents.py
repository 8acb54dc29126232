"""Our agents: where they run, what they are told, and what is switched off."""

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


def test_agents_run_where_people_expect_them_without_credentials() -> None:
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


def test_what_is_switched_off_is_not_rendered() -> None:
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


def test_a_driver_on_the_host_has_no_daemon_set_but_artefacts_by_name() -> None:
    rendering = SITUATIONS["driver-on-the-host"].rendering()
    assert drivers(rendering) == []
    volumes = pod_of(rendering, "nvidia-container-toolkit-daemonset")["volumes"]
    assert {
        "name": "artefacts",
        "configMap": {"name": "sluice-driver-artefacts", "optional": True},
    } in volumes


def test_without_a_policy_agents_are_there_and_drivers_are_not() -> None:
    rendering = Situation([]).rendering()
    assert [name for kind, name in rendered_names(rendering) if kind == "DaemonSet"] == [
        "nvidia-container-toolkit-daemonset",
        "nvidia-operator-validator",
        "nvidia-device-plugin-daemonset",
        "nvidia-dcgm-exporter",
        "gpu-feature-discovery",
    ]


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_agent_keeps_a_journal_of_its_own_where_it_may_write(name: str) -> None:
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


def test_who_asks_the_kubelet_what_pods_have_sees_its_socket() -> None:
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


def test_an_empty_text_is_not_a_place_nor_a_name() -> None:
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
def test_slices_are_offered_as_the_policy_says(objects: list[Object], strategy: str) -> None:
    rendering = Situation(objects).rendering()
    for app in (
        "gpu-feature-discovery",
        "nvidia-device-plugin-daemonset",
        "nvidia-operator-validator",
    ):
        assert env_of(pod_of(rendering, app)["containers"][0])["MIG_STRATEGY"] == strategy


def test_the_agent_of_two_sections_takes_the_toolkit_s_words_first() -> None:
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
def test_how_many_agents_are_replaced_at_a_time(said: str, most: int | str) -> None:
    policy = cluster_policy(daemonsets={"rollingUpdate": {"maxUnavailable": said}})
    (made, *_) = [
        one for one in Situation([policy]).rendering().objects if one.operand is Operand.DISCOVERY
    ]
    strategy = made.object["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}
