"""`helm install` on a real node: services, NATS, agents and driver run, and a pod with a GPU."""

import json

import pytest

from libs.contracts.identities import COMPONENTS
from tests.system.install.world import NAMESPACE, World
from tests.system.upgrade.workload import SERVICE, service


@pytest.mark.timeout(1200)
async def test_helm_installs_sluice_which_brings_up_the_gpus(world: World) -> None:
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
    await world.until(
        "jsonpath={.status.phase}=Complete", "rollout/clusterpolicy-cluster-policy", within=240
    )
    agents = await world.until_rolled_out("daemonset", within=120)
    assert len(agents) == len(COMPONENTS) + len(["the driver"])
    await world.until(r"jsonpath={.status.allocatable.nvidia\.com/gpu}=4", "node/node-1", within=60)
    await world.kubectl.apply(*service(1))
    await world.until("condition=Available", f"deployment/{SERVICE}", within=60)

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
