"""`helm install` on a real node: services, NATS and agents are Ready, and `helm test` says so."""

import pytest

from tests.system.install.world import World

AGENTS = {
    "sluice-device-plugin",
    "sluice-discovery-agent",
    "sluice-driver-agent",
    "sluice-telemetry-agent",
    "sluice-validator-agent",
}


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
    await world.until_agents_are_ready(AGENTS, within=240)
    await world.kubectl.wait("jsonpath={.status.state}=ready", "clusterpolicy/cluster-policy")
    said = await world.test()
    assert "signed in at tls://sluice-nats.gpu-operator.svc:4222" in said
    assert "fault" not in said
    assert await world.pods("app.kubernetes.io/component=test") == {}
