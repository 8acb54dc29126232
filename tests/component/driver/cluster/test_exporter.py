"""The Service and the ServiceMonitor of the telemetry agents."""

from typing import Any

from libs.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from services.driver.cluster import resources
from services.driver.cluster.plan import MISSING_DEFINITION
from tests.component.definitions import open_definition
from tests.component.driver.cluster.world import EXPORTER_OFF, World, in_world
from tests.component.processes import NAMESPACE

NAME = "nvidia-dcgm-exporter"
MONITOR: dict[str, Any] = {
    "enabled": True,
    "interval": "15s",
    "additionalLabels": {"release": "prometheus"},
}
MONITORED = {"dcgmExporter": {"serviceMonitor": MONITOR}}
DEFINITION = open_definition(resources.SERVICE_MONITORS)


async def monitor(world: World) -> resources.Specified:
    return await world.kube.get(resources.SERVICE_MONITORS, NAME, namespace=NAMESPACE)


@in_world
async def test_a_monitor_is_created_changed_and_deleted_as_the_policy_says(world: World) -> None:
    await world.install_policy(**MONITORED)
    await world.apply(DEFINITION)
    role = await world.lead()
    created = await monitor(world)
    assert created.spec["endpoints"] == [
        {"port": "gpu-metrics", "path": "/metrics", "interval": "15s"}
    ]
    assert created.metadata.labels["release"] == "prometheus"
    assert created.metadata.labels["app"] == NAME

    relabelings = [{"sourceLabels": ["x"], "targetLabel": "y"}]
    changes = {
        "interval": None,
        "honorLabels": True,
        "additionalLabels": {"release": None},
        "relabelings": relabelings,
    }
    await world.change_policy(dcgmExporter={"serviceMonitor": changes})
    await world.sleep(10)
    changed = await monitor(world)
    assert changed.metadata.uid == created.metadata.uid
    assert changed.spec["endpoints"] == [
        {
            "port": "gpu-metrics",
            "path": "/metrics",
            "honorLabels": True,
            "relabelings": relabelings,
        }
    ]
    assert "release" not in changed.metadata.labels

    before = len(world.revisions())
    await role.stop()
    await world.lead()
    assert len(world.revisions()) == before

    await world.change_policy(dcgmExporter={"serviceMonitor": {"enabled": False}})
    await world.sleep(30)
    assert not await world.exists(resources.SERVICE_MONITORS, NAME)
    assert await world.exists(resources.SERVICES, NAME)


@in_world
async def test_the_service_follows_the_policy_and_goes_with_the_agents(world: World) -> None:
    await world.install_policy(**MONITORED)
    await world.apply(DEFINITION)
    await world.lead()
    service = await world.kube.get(resources.SERVICES, NAME, namespace=NAMESPACE)
    (port,) = service.spec["ports"]
    assert (port["name"], port["port"]) == ("gpu-metrics", 9400)
    assert service.metadata.annotations == {"prometheus.io/scrape": "true"}
    agents = (await world.daemon_sets())["sluice-telemetry-agent"]
    labels = agents.spec["template"]["metadata"]["labels"]
    assert service.spec["selector"].items() <= labels.items()

    await world.change_policy(dcgmExporter={"service": {"internalTrafficPolicy": "Local"}})
    await world.sleep(10)
    service = await world.kube.get(resources.SERVICES, NAME, namespace=NAMESPACE)
    assert service.spec["internalTrafficPolicy"] == "Local"

    await world.change_policy(**EXPORTER_OFF)
    await world.sleep(30)
    assert not await world.exists(resources.SERVICES, NAME)
    assert not await world.exists(resources.SERVICE_MONITORS, NAME)


@in_world
async def test_a_missing_definition_is_named_and_stops_nothing_else(world: World) -> None:
    await world.install_policy(**MONITORED)
    role = await world.lead()
    assert role.service.unready_reasons() == []
    condition = (await world.conditions())[MISSING_DEFINITION]
    assert (condition["status"], condition["reason"]) == ("True", "NotInstalled")
    assert "servicemonitors.monitoring.coreos.com" in condition["message"]
    assert "state-dcgm-exporter" not in (await world.conditions())["Error"]["message"]
    assert await world.exists(resources.SERVICES, NAME)
    assert len(await world.drivers()) == 2
    assert await world.events() == []

    await world.apply(DEFINITION)
    await world.sleep(60)
    assert (await monitor(world)).spec["endpoints"][0]["interval"] == "15s"
    assert MISSING_DEFINITION not in await world.conditions()

    await world.remove(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION["metadata"]["name"])
    await world.sleep(60)
    assert MISSING_DEFINITION in await world.conditions()
    await world.apply(DEFINITION)
    await world.sleep(90)
    assert (await monitor(world)).spec["endpoints"][0]["interval"] == "15s"
    assert MISSING_DEFINITION not in await world.conditions()


@in_world
async def test_a_monitor_of_others_is_left_alone(world: World) -> None:
    await world.install_policy()
    await world.apply(DEFINITION)
    api = resources.SERVICE_MONITORS
    theirs = {
        "apiVersion": api.api_version,
        "kind": api.kind,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"endpoints": [{"port": "theirs"}]},
    }
    await world.apply(theirs)
    await world.lead()
    assert (await monitor(world)).spec == theirs["spec"]
    await world.change_policy(**MONITORED)
    await world.sleep(30)
    assert (await monitor(world)).spec == theirs["spec"]
    ((reason, message),) = await world.events()
    assert reason == "Refused"
    assert f"ServiceMonitor {NAME} exists and was not created by Sluice" in message


@in_world
async def test_metrics_of_nodes_are_found_by_a_service_while_they_are_switched_on(
    world: World,
) -> None:
    name = "nvidia-node-status-exporter"
    await world.install_policy(nodeStatusExporter={"enabled": True, "serviceMonitor": MONITOR})
    await world.apply(DEFINITION)
    await world.lead()
    service = await world.kube.get(resources.SERVICES, name, namespace=NAMESPACE)
    (port,) = service.spec["ports"]
    assert (port["name"], port["port"]) == ("node-status-metrics", 8000)
    agents = (await world.daemon_sets())["sluice-validator-agent"].spec["template"]
    assert service.spec["selector"].items() <= agents["metadata"]["labels"].items()
    (container,) = agents["spec"]["containers"]
    assert [each["containerPort"] for each in container["ports"]] == [8000]
    assert {"name": "SLUICE_EXPORT_NODE_STATUS", "value": "true"} in container["env"]
    found = await world.kube.get(resources.SERVICE_MONITORS, name, namespace=NAMESPACE)
    selected = found.spec["selector"]["matchLabels"].items()
    assert selected <= service.metadata.labels.items()

    await world.change_policy(nodeStatusExporter={"enabled": False})
    await world.sleep(30)
    for kind in (resources.SERVICES, resources.SERVICE_MONITORS):
        assert not await world.exists(kind, name)
        assert await world.exists(kind, NAME) is (kind is resources.SERVICES)
