"""`helm install` on a real node: services, NATS and agents are Ready."""

import pytest

from tests.system.install.world import World

AGENTS = ("discovery-agent", "driver-agent", "telemetry-agent", "validator-agent")


@pytest.mark.timeout(1200)
async def test_helm_installs_sluice(world: World) -> None:
    said = await world.install()
    assert "These values have no effect" not in said
    assert await world.until_rolled_out("statefulset", within=240) == ["sluice-nats"]
    assert await world.until_rolled_out("deployment", within=240) == [
        "sluice-discovery-cluster",
        "sluice-driver-cluster",
        "sluice-scheduler",
        "sluice-sign-in",
        "sluice-telemetry-cluster",
        "sluice-validator-cluster",
    ]
    agents = [f"daemonset/sluice-{name}" for name in ("device-plugin", *AGENTS)]
    await world.in_namespace("wait", "--for=create", "--timeout=120s", *agents)
    ready = "--for=jsonpath={.status.numberReady}=1"
    await world.in_namespace("wait", ready, "--timeout=240s", *agents)
