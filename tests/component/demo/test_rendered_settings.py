"""Agents accept the environment of their rendered pods; unknown settings would stop them."""

from pathlib import Path

import pytest

from libs.bus.agent import AgentSettings
from libs.host.gpus.library import NAME, find_library
from libs.host.tree import Tree
from libs.runtime.settings import load
from services.discovery.node.agent import DiscoverySettings
from services.driver.node.agent import DriverAgentSettings
from services.driver.plugin.settings import PluginSettings
from services.telemetry.node.agent import TelemetrySettings
from services.validator.node.agent import ValidatorSettings
from tests.builders.machine_files import put
from tests.unit.policy.situations import SITUATIONS, Situation, cluster_policy, env_of, pod_of

KINDS: dict[str, type[AgentSettings]] = {
    "gpu-feature-discovery": DiscoverySettings,
    "nvidia-container-toolkit-daemonset": DriverAgentSettings,
    "nvidia-device-plugin-daemonset": PluginSettings,
    "nvidia-operator-validator": ValidatorSettings,
    "nvidia-dcgm-exporter": TelemetrySettings,
}


RENDERED = [
    (situation, app)
    for situation, inputs in SITUATIONS.items()
    for rendered in inputs.rendering().objects
    if (app := rendered.object["metadata"]["labels"].get("app")) in KINDS
]


@pytest.mark.parametrize(("situation", "app"), RENDERED)
def test_an_agent_starts_with_the_environment_of_its_pod(situation: str, app: str) -> None:
    rendering = SITUATIONS[situation].rendering()
    (container,) = pod_of(rendering, app)["containers"]
    environ = {
        **env_of(container),
        "SLUICE_NODE": "a",
        "SLUICE_POD_UID": "p-1",
        "SLUICE_NAMESPACE": "gpu-operator",
    }
    settings = load(KINDS[app], environ=environ)
    assert settings.node == "a"
    assert str(settings.host_root) == environ["SLUICE_HOST_ROOT"]
    assert settings.nats.url == environ["SLUICE_NATS_URL"]


@pytest.mark.parametrize("app", KINDS)
def test_an_agent_looks_for_the_driver_where_the_policy_says(app: str, tmp_path: Path) -> None:
    """Where a driver is installed is a field of the policy; a machine may have another driver."""
    policy = cluster_policy(hostPaths={"driverInstallDir": "/home/kubernetes/bin/nvidia/"})
    (container,) = pod_of(Situation([policy]).rendering(), app)["containers"]
    settings = load(KINDS[app], environ={**env_of(container), "SLUICE_NODE": "a"})
    for folder in ("/home/kubernetes/bin/nvidia/lib64", "/run/nvidia/driver/usr/lib64"):
        put(tmp_path, f"{folder}/{NAME}", "")
    found = find_library(
        Tree(tmp_path), setting=settings.nvml_library, driver_root=settings.driver_root
    )
    assert found == f"{tmp_path}/home/kubernetes/bin/nvidia/lib64/{NAME}"


def test_every_agent_is_covered() -> None:
    assert {app for _, app in RENDERED} == set(KINDS)
