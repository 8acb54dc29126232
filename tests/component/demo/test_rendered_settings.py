"""Agents accept the environment of their rendered pods; unknown settings would stop them."""

import pytest

from libs.bus.agent import AgentSettings
from libs.runtime.settings import load
from services.discovery.node.agent import DiscoverySettings
from services.driver.node.agent import DriverAgentSettings
from services.driver.plugin.settings import PluginSettings
from services.telemetry.node.agent import TelemetrySettings
from services.validator.node.agent import ValidatorSettings
from tests.unit.policy.situations import SITUATIONS, env_of, pod_of

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


def test_every_agent_is_covered() -> None:
    assert {app for _, app in RENDERED} == set(KINDS)
