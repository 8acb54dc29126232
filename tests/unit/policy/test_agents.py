"""Our agents: where they run, what they are told, and what is switched off."""

import pytest

from sluice.policy.rendering.rendered import Operand
from tests.unit.policy.situations import (
    SETTINGS,
    SITUATIONS,
    Situation,
    cluster_policy,
    drivers,
    env_of,
    names,
    pod_of,
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
    assert names(rendering) == [
        ("RuntimeClass", "nvidia"),
        ("DaemonSet", "nvidia-container-toolkit-daemonset"),
        ("DaemonSet", "nvidia-operator-validator"),
        ("DaemonSet", "gpu-feature-discovery"),
    ]
    driver = env_of(pod_of(rendering, "nvidia-container-toolkit-daemonset")["containers"][0])
    assert (driver["SLUICE_TOOLKIT"], driver["SLUICE_MIG_MANAGER"]) == ("false", "false")


def test_a_driver_on_the_host_has_no_daemon_set_but_artefacts_by_name() -> None:
    rendering = SITUATIONS["driver-on-the-host"].rendering()
    assert drivers(rendering) == []
    assert not any(kind == "ConfigMap" for kind, _ in names(rendering))
    volumes = pod_of(rendering, "nvidia-container-toolkit-daemonset")["volumes"]
    assert {
        "name": "artefacts",
        "configMap": {"name": "sluice-driver-artefacts", "optional": True},
    } in volumes


def test_without_a_policy_agents_are_there_and_drivers_are_not() -> None:
    rendering = Situation([]).rendering()
    assert [name for kind, name in names(rendering) if kind == "DaemonSet"] == [
        "nvidia-container-toolkit-daemonset",
        "nvidia-operator-validator",
        "nvidia-device-plugin-daemonset",
        "nvidia-dcgm-exporter",
        "gpu-feature-discovery",
    ]


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
