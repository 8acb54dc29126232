"""`helm install` on a real node: services, NATS and agents run, and the policy gets ready."""

import json

import pytest

from tests.system.install.world import NAMESPACE, World


@pytest.mark.timeout(1200)
async def test_helm_installs_sluice_and_the_policy_gets_ready(world: World) -> None:
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
    await world.until_policy_is("ready", within=180)
    agents = await world.until_rolled_out("daemonset", within=120)
    assert len(agents) >= 5

    # The setup has ended, and with it its rights.
    left = await world.kubectl.get("--namespace", NAMESPACE, "role,rolebinding,serviceaccount,job")
    assert "sluice-setup" not in [each["metadata"]["name"] for each in left["items"]]

    # An upgrade that changes nothing keeps the keys, and replaces no pod.
    before = await uids(world)
    secrets = await data(world)
    await world.helm("upgrade")
    assert await data(world) == secrets
    assert await uids(world) == before


async def uids(world: World) -> set[str]:
    pods = await world.kubectl.get("--namespace", NAMESPACE, "pods")
    return {each["metadata"]["uid"] for each in pods["items"]}


async def data(world: World) -> str:
    secrets = await world.kubectl.get("--namespace", NAMESPACE, "secrets")
    listed = {each["metadata"]["name"]: each["data"] for each in secrets["items"]}
    return json.dumps({name: of for name, of in listed.items() if "helm" not in name})
