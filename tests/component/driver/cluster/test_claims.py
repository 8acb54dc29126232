"""GPUs by claims: what the switch creates and deletes, and why a claim waits."""

from typing import Any

import msgspec

from libs.contracts.node import STATE_LABEL
from libs.kube.resources import NAMESPACES
from libs.kube.views.claims import RESOURCE_CLAIMS
from services.driver.cluster import resources
from services.driver.cluster.claim_follower import SETTLES_IN
from services.driver.cluster.claim_notices import SWITCHED_OFF
from services.driver.cluster.remaining_claims import CLAIMS_REMAIN
from tests.component.driver.cluster.world import World, in_world

PLUGIN, DRA = "sluice-device-plugin", "sluice-dra"
CLAIMS_ON: dict[str, Any] = {"devicePlugin": {"enabled": False}, "dra": {"enabled": True}}
CLAIMS_OFF: dict[str, Any] = {"devicePlugin": {"enabled": True}, "dra": {"enabled": False}}
CLASSES = ("gpu.nvidia.com", "mig.nvidia.com")
KEPT = "pods that have started keep their GPUs, others wait"


async def there(world: World) -> set[str]:
    """Return which of the switched objects exist."""
    kinds = {PLUGIN: resources.DAEMON_SETS, DRA: resources.DAEMON_SETS}
    kinds |= dict.fromkeys(CLASSES, resources.DEVICE_CLASSES)
    return {name for name, kind in kinds.items() if await world.exists(kind, name)}


async def claim_events(world: World) -> list[tuple[str, str, str]]:
    """Return kind, reason and message of the Events in the claims' namespace."""
    page = await world.kube.request("GET", "/api/v1/namespaces/ml/events")
    return sorted(
        (event["involvedObject"]["kind"], event["reason"], event["message"])
        for event in msgspec.json.decode(page)["items"]
    )


async def allocate(world: World, name: str, node: str) -> None:
    """Create a claim of one pod that has a GPU of the node."""
    made = await world.kube.create(RESOURCE_CLAIMS, {"metadata": {"name": name}}, namespace="ml")
    result = {"request": "gpu", "driver": CLASSES[0], "pool": node, "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "trainer", "uid": "uid-of-trainer"}],
    }
    await world.kube.merge(
        RESOURCE_CLAIMS,
        name,
        {"status": status},
        resource_version=made.metadata.resource_version,
        namespace="ml",
        subresource="status",
    )


async def assert_ends(world: World) -> None:
    """Assert that the plugin on the nodes takes back what pods have, and gives nothing new."""
    template = (await world.daemon_sets())[DRA].spec["template"]
    (container,) = template["spec"]["containers"]
    assert {"name": "SLUICE_ENDS", "value": "true"} in container["env"]


@in_world
async def test_the_switch_replaces_the_device_plugin_and_back(world: World) -> None:
    await world.install_policy()
    await world.lead()
    assert await there(world) == {PLUGIN}
    await world.change_policy(**CLAIMS_ON)
    await world.sleep(30)
    assert await there(world) == {DRA, *CLASSES}
    before = len(world.revisions())
    await world.sleep(120)
    assert len(world.revisions()) == before
    await world.change_policy(**CLAIMS_OFF)
    await world.sleep(SETTLES_IN + 10)
    assert await there(world) == {PLUGIN}


@in_world
async def test_both_at_once_are_refused_in_words_and_change_nothing(world: World) -> None:
    await world.install_policy()
    await world.lead()
    await world.change_policy(dra={"enabled": True})
    await world.sleep(30)
    assert await there(world) == {PLUGIN}
    accepted = (await world.conditions())["Accepted"]
    assert accepted["status"] == "False"
    assert "cannot be combined with spec.devicePlugin.enabled" in accepted["message"]


@in_world
async def test_a_claim_and_its_pod_say_within_ten_seconds_why_they_wait(world: World) -> None:
    await world.install_policy(**CLAIMS_ON)
    await world.lead()
    await world.kube.create(NAMESPACES, {"metadata": {"name": "ml"}})
    await allocate(world, "one", "a")
    await world.sleep(10)
    away = f"the plugin for claims of node a is not ready: {KEPT}"
    expected = [(kind, "ClaimWaits", away) for kind in ("Pod", "ResourceClaim")]
    assert await claim_events(world) == expected
    await world.kube.merge(
        resources.NODES,
        "a",
        {"metadata": {"labels": {STATE_LABEL: "drain-required"}}},
        resource_version=(await world.kube.get(resources.NODES, "a")).metadata.resource_version,
    )
    await world.sleep(10)
    changing = f"the driver of node a is being changed (drain-required): {KEPT}"
    expected += [(kind, "ClaimWaits", changing) for kind in ("Pod", "ResourceClaim")]
    assert await claim_events(world) == sorted(expected)


@in_world
async def test_switched_off_the_plugin_stays_until_the_claims_end(world: World) -> None:
    await world.install_policy(**CLAIMS_ON)
    await world.lead()
    await world.kube.create(NAMESPACES, {"metadata": {"name": "ml"}})
    await allocate(world, "one", "a")
    await world.sleep(10)
    before = await claim_events(world)
    await world.change_policy(**CLAIMS_OFF)
    await world.sleep(10)
    assert await there(world) == {PLUGIN, DRA}
    remain = (await world.conditions())[CLAIMS_REMAIN]
    assert "pods have GPUs by claims on a: they keep them until they end" in remain["message"]
    await assert_ends(world)
    found = [each for each in await claim_events(world) if each not in before]
    assert found == [(kind, "ClaimWaits", SWITCHED_OFF) for kind in ("Pod", "ResourceClaim")]
    await world.sleep(120)
    assert await there(world) == {PLUGIN, DRA}

    claim = await world.kube.get(RESOURCE_CLAIMS, "one", namespace="ml")
    await world.kube.delete(RESOURCE_CLAIMS, "one", uid=claim.metadata.uid, namespace="ml")
    await world.sleep(10)
    assert await there(world) == {PLUGIN}
    assert CLAIMS_REMAIN not in await world.conditions()


@in_world
async def test_another_leader_keeps_the_plugin_until_it_knows_the_claims(world: World) -> None:
    await world.install_policy(**CLAIMS_ON)
    first = await world.lead()
    await world.kube.create(NAMESPACES, {"metadata": {"name": "ml"}})
    await allocate(world, "one", "a")
    await first.stop()
    await world.change_policy(**CLAIMS_OFF)
    await world.lead()
    await world.sleep(30)
    assert await there(world) == {PLUGIN, DRA}
    assert not [each for each in world.revisions("DaemonSet") if each.verb == "delete"]
    await assert_ends(world)


@in_world
async def test_a_claim_that_is_allocated_with_the_switch_keeps_the_plugin(world: World) -> None:
    """The last look found none: without the plugin its pod would never end."""
    await world.install_policy(**CLAIMS_ON)
    await world.lead()
    await world.kube.create(NAMESPACES, {"metadata": {"name": "ml"}})
    await world.sleep(10)
    await world.change_policy(**CLAIMS_OFF)
    await world.sleep(1)
    await allocate(world, "one", "a")
    await world.sleep(120)
    assert await there(world) == {PLUGIN, DRA}
    assert not [each for each in world.revisions("DaemonSet") if each.verb == "delete"]


@in_world
async def test_a_plugin_that_a_person_deletes_comes_back_while_claims_end(world: World) -> None:
    await world.install_policy(**CLAIMS_ON)
    await world.lead()
    await world.kube.create(NAMESPACES, {"metadata": {"name": "ml"}})
    await allocate(world, "one", "a")
    await world.sleep(10)
    await world.change_policy(**CLAIMS_OFF)
    await world.sleep(10)
    found = (await world.daemon_sets())[DRA]
    await world.kube.delete(
        resources.DAEMON_SETS, DRA, uid=found.metadata.uid, namespace=found.metadata.namespace
    )
    await world.sleep(10)
    await assert_ends(world)
    assert CLAIMS_REMAIN in await world.conditions()


@in_world
async def test_claims_that_are_switched_on_again_do_not_wait_for_a_rolling_update(
    world: World,
) -> None:
    """With OnDelete, or beside a node that is down, pods that give nothing would stay."""
    await world.install_policy(**CLAIMS_ON, daemonsets={"updateStrategy": "OnDelete"})
    await world.lead()
    await world.kube.create(NAMESPACES, {"metadata": {"name": "ml"}})
    await allocate(world, "one", "a")
    await world.sleep(10)
    given = (await world.daemon_sets())[DRA]
    await world.change_policy(**CLAIMS_OFF)
    await world.sleep(10)
    ends = (await world.daemon_sets())[DRA]
    assert ends.metadata.uid == given.metadata.uid
    await world.change_policy(**CLAIMS_ON)
    await world.sleep(10)
    again = (await world.daemon_sets())[DRA]
    assert again.metadata.uid != ends.metadata.uid
    assert again.spec == given.spec


@in_world
async def test_without_a_device_plugin_nothing_is_said_to_be_offered(world: World) -> None:
    await world.install_policy(**CLAIMS_ON)
    await world.lead()
    await world.kube.create(NAMESPACES, {"metadata": {"name": "ml"}})
    await allocate(world, "one", "a")
    await world.sleep(10)
    await world.change_policy(dra={"enabled": False})
    await world.sleep(10)
    assert (await world.conditions())[CLAIMS_REMAIN]["message"].endswith("stays as long")
