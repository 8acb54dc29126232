"""The agents' DaemonSets: selectors, environment, and disabled operands."""

import pytest

from libs.policy.render.rendered import Operand
from tests.unit.policy.situations import (
    SITUATIONS,
    Object,
    Situation,
    cluster_policy,
    env_of,
    pod_of,
    rendered_names,
)

APPS = (
    "nvidia-container-toolkit-daemonset",
    "nvidia-operator-validator",
    "nvidia-device-plugin-daemonset",
    "nvidia-dcgm-exporter",
    "gpu-feature-discovery",
)


NAMES = (
    "sluice-driver-agent",
    "sluice-validator-agent",
    "sluice-device-plugin",
    "sluice-telemetry-agent",
    "sluice-discovery-agent",
)


@pytest.mark.parametrize("name", SITUATIONS)
def test_agents_have_their_own_state_and_a_token_for_the_bus_alone(name: str) -> None:
    rendering = SITUATIONS[name].rendering()
    directories: list[str] = []
    for app, name_of_agent in zip(APPS, NAMES, strict=True):
        if ("DaemonSet", name_of_agent) not in rendered_names(rendering):
            continue
        pod = pod_of(rendering, app)
        assert pod["automountServiceAccountToken"] is False
        tokens = [
            source["serviceAccountToken"]["audience"]
            for volume in pod["volumes"]
            for source in volume.get("projected", {}).get("sources", [])
        ]
        assert tokens == ["sluice"]
        (container,) = pod["containers"]
        directory = env_of(container)["SLUICE_STATE_DIR"]
        (mount,) = [item for item in container["volumeMounts"] if item["mountPath"] == directory]
        (volume,) = [item for item in pod["volumes"] if item["name"] == mount["name"]]
        assert "readOnly" not in mount
        assert volume["hostPath"]["type"] == "DirectoryOrCreate"
        directories.append(volume["hostPath"]["path"])
    assert len(set(directories)) == len(directories) >= 3


@pytest.mark.parametrize(
    ("value", "directory"),
    [
        ("/data/kubelet", "/data/kubelet"),
        ("/data/kubelet/", "/data/kubelet"),
        ("", "/var/lib/kubelet"),
    ],
)
def test_agents_mount_the_kubelets_sockets(value: str, directory: str) -> None:
    rendering = Situation([cluster_policy(hostPaths={"kubeletRootDir": value})]).rendering()
    sockets = dict.fromkeys(APPS[:4], "pod-resources")
    sockets["nvidia-device-plugin-daemonset"] = "device-plugins"
    for app, name in sockets.items():
        pod = pod_of(rendering, app)
        (path,) = [item["hostPath"]["path"] for item in pod["volumes"] if item["name"] == name]
        assert path == f"{directory}/{name}"
        paths = [item["mountPath"] for item in pod["containers"][0]["volumeMounts"]]
        assert f"/var/lib/kubelet/{name}" in paths


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
    env = env_of(container)
    assert (env["A"], env["B"]) == ("1", "3")
    assert container["resources"] == {"limits": {"cpu": "1", "memory": "1Gi"}}
    assert container["imagePullPolicy"] == "Always"


@pytest.mark.parametrize(
    ("value", "most"), [("", 1), ("3", 3), ("20%", "20%"), ("0", 1), ("0%", 1)]
)
def test_max_unavailable_of_agent_daemon_sets(value: str, most: int | str) -> None:
    policy = cluster_policy(daemonsets={"rollingUpdate": {"maxUnavailable": value}})
    rendering = Situation([policy]).rendering()
    (agent,) = [item for item in rendering.objects if item.operand is Operand.DISCOVERY]
    strategy = agent.object["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}
